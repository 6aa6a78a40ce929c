// Plugins that must be refused; WHICH says why.
#include <ctitan/plugin.h>

#ifdef NO_ENTRY
int nothing_here(void);
int nothing_here(void) { return 0; }
#else
static void run(const ctitan_call *call, ctitan_team *team) { (void)call, (void)team; }
static void reference(const ctitan_reference *call) { (void)call; }
static const ctitan_kernel kernels[] = {{"f>f", run, NULL}, {0}};
static const ctitan_op ops[] = {{.name = NAME, .formula = "none", .rule = RULE, .dtypes = "f>f", .inputs = 1, .outputs = 1,
                                 .reference = reference, .kernels = kernels}, {0}};
static const ctitan_plugin_description description = {ABI, "bad", ops, NULL};
const ctitan_plugin_description *ctitan_plugin(const ctitan_host *host);
const ctitan_plugin_description *ctitan_plugin(const ctitan_host *host) {
    (void)host;
    return &description;
}
#endif
