# The table of one group of scripts/bench-meshes. A line of input: group|case|reference|round|quiet|seconds of each step, parted by spaces.
# A run counts by the median of its steps; quiet runs only, where the case has any.
function median(list, n,   i, j, t) {
    for (i = 2; i <= n; i++) for (j = i; j > 1 && list[j - 1] > list[j]; j--) { t = list[j]; list[j] = list[j - 1]; list[j - 1] = t }
    return n % 2 ? list[(n + 1) / 2] : (list[n / 2] + list[n / 2 + 1]) / 2
}
$1 == group {
    if (!($2 in runs)) { cases[++count] = $2; reference[$2] = $3; best[$2] = 1e9 }
    runs[$2]++
    quiet[$2] += $5
    n = split($6, steps, " ")
    for (i = 1; i <= n; i++) if (steps[i] < best[$2]) best[$2] = steps[i]
    time[$2, $4] = median(steps, n)
    is_quiet[$2, $4] = $5
    if ($4 > rounds) rounds = $4
}
END {
    printf "%-28s %9s %8s %8s %8s %8s %7s %8s %7s  %s\n", group, "tokens/s", "floor", "best", "median", "worst", "x", "x range", "x best", "quiet runs"
    for (c = 1; c <= count; c++) {
        name = cases[c]; of = reference[name]; n = m = 0
        for (r = 1; r <= rounds; r++) {
            if (!((name, r) in time)) continue
            if (is_quiet[name, r] || !quiet[name]) list[++n] = time[name, r]
            pair = is_quiet[name, r] && is_quiet[of, r]
            if (of != "" && ((of, r) in time) && (pair || !paired[name])) {
                if (pair && !paired[name]) { paired[name] = 1; m = 0 }
                ratio[++m] = time[of, r] / time[name, r]
            }
        }
        middle = median(list, n)
        twice = name " " of ~ /8 sequences/ ? 2 : 1 # as many tokens
        printf "%-28s %9.0f %8s %8.3f %8.3f %8.3f ", name, twice * tokens / middle, (floor > 0 ? sprintf("%.3f", floor) : "-"), best[name], middle, list[n]
        if (m) { x = median(ratio, m); printf "%7.3f %3.2f-%3.2f %7.3f", x, ratio[1], ratio[m], best[of] / best[name] }
        else printf "%7s %9s %7s", "", "", ""
        printf "  %d of %d\n", quiet[name], runs[name]
    }
    print ""
}
