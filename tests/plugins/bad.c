// Plugins that must be refused; definitions of the build say why.
#include <ctitan/plugin.h>

#ifdef NO_ENTRY
int nothing_here(void);
int nothing_here(void) { return 0; }
#else
#ifndef SERVES
#define SERVES 1
#endif
#ifndef ABI
#define ABI CTITAN_ABI
#endif
#ifndef NAME
#define NAME "new"
#endif
#ifndef RULE
#define RULE "* -> *"
#endif
#ifndef DTYPES
#define DTYPES "f>f"
#endif
#ifndef KERNEL
#define KERNEL "f>f"
#endif
#ifndef FLAGS
#define FLAGS 0
#endif
#ifndef SOURCE
#define SOURCE {0}
#endif
static void run(const ctitan_call *call, ctitan_team *team) { (void)call, (void)team; }
static void reference(const ctitan_reference *call) { (void)call; }
static const ctitan_kernel kernels[] = {{KERNEL, run, NULL}, {0}};
static const ctitan_op ops[] = {{.name = NAME, .formula = "none", .rule = RULE, .dtypes = DTYPES, .inputs = 1, .outputs = 1, .flags = FLAGS,
                                 .reference = reference, .kernels = kernels}, {0}};
static const ctitan_source sources[] = {SOURCE, {0}};
static const ctitan_plugin_description description = {ABI, "bad", ops, NULL, sources};
const ctitan_plugin_description *ctitan_plugin(const ctitan_host *host);
const ctitan_plugin_description *ctitan_plugin(const ctitan_host *host) {
    (void)host;
    return SERVES ? &description : NULL;
}
#endif
