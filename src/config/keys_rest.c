// Keys of [comm], [fault_tolerance], [experimental], [plugins] and [debug].
#include "keys.h"
#include "ranges.h"

#define AT(field) offsetof(ct_config, field)

static const config_choice comm_modes[] = {{"default", CT_CFG_COMM_DEFAULT},
                                           {"fake_backend", CT_CFG_COMM_FAKE},
                                           {"local_tensor", CT_CFG_COMM_LOCAL_TENSOR},
                                           {NULL, 0}};

static const char with_ft[] = "fault_tolerance.enable",
                  deterministic[] = "everything here is deterministic";

static const config_key keys[] = {
    {"comm", "init_timeout_seconds", KEY_INT, .offset = AT(comm.init_timeout_seconds), .default_text = "300",
     .range = &config_at_least_1, .unit = "seconds",
     .help = "How long ranks wait for each other up to the first step."},
    {"comm", "train_timeout_seconds", KEY_INT, .offset = AT(comm.train_timeout_seconds), .default_text = "100",
     .range = &config_at_least_1, .unit = "seconds", .help = "How long they wait for each other after it."},
    {"comm", "trace_buf_size", KEY_INT, .offset = AT(comm.trace_buf_size), .default_text = "20000",
     .range = &config_at_least_0, .unit = "entries",
     .help = "Communication calls that are remembered for a post-mortem; 0: none."},
    {"comm", "save_traces_folder", KEY_STRING, .offset = AT(comm.save_traces_folder),
     .default_text = "\"comm_traces\"",
     .help = "Folder they are written to, below job.dump_folder."},
    {"comm", "save_traces_file_prefix", KEY_STRING, .offset = AT(comm.save_traces_file_prefix),
     .default_text = "\"rank_\"", .help = "Beginning of those files' names."},
    {"comm", "mode", KEY_ENUM, .offset = AT(comm.mode), .default_text = "\"default\"", .choices = comm_modes,
     .built = "default", .help = "Run for real, pretend, or run all ranks in one process."},
    {"comm", "ranks_per_node", KEY_INT, .offset = AT(comm.ranks_per_node), .default_text = "0",
     .range = &config_at_least_0, .unit = "ranks", .source = FROM_US,
     .help = "Treat each so many ranks as a node, for tests on one machine; 0: the nodes there are."},
    {"comm", "shared_memory", KEY_BOOL, .offset = AT(comm.shared_memory), .default_text = "true", .source = FROM_US,
     .help = "Within a node, read peers' memory in place; false: everything goes through MPI."},
    {"comm", "heartbeat_timeout_seconds", KEY_FLOAT, .offset = AT(comm.heartbeat_timeout_seconds),
     .default_text = "5.0", .range = &config_above_0, .unit = "seconds", .source = FROM_US,
     .help = "A process that has not beaten for so long counts as dead or stopped."},
    {"comm", "overlap", KEY_BOOL, .offset = AT(comm.overlap), .default_text = "true", .source = FROM_US,
     .help = "Begin messages between nodes as soon as what they carry stands, up to a layer ahead, and end them where it is read; false: both there."},

    {"fault_tolerance", "enable", KEY_BOOL, .offset = AT(fault_tolerance.enable), .default_text = "false",
     .numbers = true, .built = "false", .help = "Go on training when a replica dies."},
    {"fault_tolerance", "process_group", KEY_STRING, .offset = AT(fault_tolerance.process_group),
     .default_text = "\"gloo\"", .use = USE_GATED, .why = with_ft, .help = "How replicas talk to each other."},
    {"fault_tolerance", "process_group_timeout_ms", KEY_INT, .offset = AT(fault_tolerance.process_group_timeout_ms),
     .default_text = "10000", .range = &config_at_least_1, .unit = "milliseconds", .use = USE_GATED, .why = with_ft,
     .help = "How long replicas wait for each other."},
    {"fault_tolerance", "replica_id", KEY_INT, .offset = AT(fault_tolerance.replica_id), .default_text = "0",
     .range = &config_at_least_0, .use = USE_GATED, .why = with_ft, .help = "Which replica this is."},
    {"fault_tolerance", "group_size", KEY_INT, .offset = AT(fault_tolerance.group_size), .default_text = "0",
     .range = &config_at_least_0, .unit = "replicas", .numbers = true, .use = USE_GATED, .why = with_ft,
     .help = "Replicas the data is dealt out to."},
    {"fault_tolerance", "min_replica_size", KEY_INT, .offset = AT(fault_tolerance.min_replica_size),
     .default_text = "1", .range = &config_at_least_1, .unit = "replicas", .use = USE_GATED, .why = with_ft,
     .help = "Replicas without which no step is taken."},
    {"fault_tolerance", "semi_sync_method", KEY_STRING, .optional = true,
     .offset = AT(fault_tolerance.semi_sync_method), .numbers = true, .use = USE_GATED, .why = with_ft,
     .help = "Average parameters now and then instead of gradients always: local_sgd or diloco."},

    {"experimental", "custom_import", KEY_STRING, .offset = AT(experimental.custom_import), .default_text = "\"\"",
     .numbers = true, .built = "", .help = "Python module to import."},
    {"experimental", "custom_args_module", KEY_STRING, .offset = AT(experimental.custom_args_module),
     .default_text = "\"\"", .built = "", .help = "Old name of job.custom_config_module."},

    {"plugins", "paths", KEY_STRINGS, .offset = AT(plugins.paths), .default_text = "[]", .numbers = true, .source = FROM_US,
     .help = "Shared objects with ops, models and data sources of your own (docs/PLUGINS.md)."},

    {"debug", "seed", KEY_INT, .optional = true, .offset = AT(debug.seed), .range = &config_at_least_0,
     .numbers = true, .help = "Seed of initialisation and shuffling; unset: 0."},
    {"debug", "deterministic", KEY_BOOL, .offset = AT(debug.deterministic), .default_text = "false", .use = USE_NONE,
     .why = deterministic, .help = "Give the same bits each time."},
    {"debug", "deterministic_warn_only", KEY_BOOL, .offset = AT(debug.deterministic_warn_only),
     .default_text = "false", .use = USE_NONE, .why = deterministic,
     .help = "Only warn of what can't be deterministic."},
    {"debug", "moe_force_load_balance", KEY_BOOL, .offset = AT(debug.moe_force_load_balance), .default_text = "false",
     .numbers = true, .built = "false", .help = "Deal tokens to experts in turn."},
    {"debug", "poison", KEY_BOOL, .offset = AT(debug.poison), .default_text = "false", .source = FROM_US,
     .help = "Fill dead memory with NaN and check that instructions touch only their declared buffers."},
};

const config_keys config_keys_rest = {keys, sizeof keys / sizeof *keys};
