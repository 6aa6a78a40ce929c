// The names of roles, phases and input kinds, as the printer writes and the parser reads them.
#include "graph/graph.h"

#include <string.h>

static const char *const roles[CT_ROLES] = {"none",   "batch",      "sequence", "heads",
                                            "hidden", "vocabulary", "expert",   "model"};
static const char *const phases[CT_PHASES] = {"forward", "recompute", "input-grad", "weight-grad", "optimizer"};
static const char *const kinds[CT_INPUT_KINDS] = {"feed", "parameter", "moment", "gradient", "weight-lowp", "state", "saved"};

const char *ct_role_name(ct_role role) { return roles[role]; }
const char *ct_phase_name(ct_phase phase) { return phases[phase]; }
const char *ct_input_kind_name(ct_input_kind kind) { return kinds[kind]; }

ct_saved_life ct_life_of(const char *saved_name) {
    size_t n = strlen(saved_name);
    int life = n ? saved_name[n - 1] - '0' : -1;
    return life >= 0 && life < CT_LIVES ? (ct_saved_life)life : CT_LIFE_TO_WEIGHT_GRAD;
}
