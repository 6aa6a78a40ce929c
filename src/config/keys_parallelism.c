// Keys of [parallelism].
#include "keys.h"
#include "ranges.h"

#define AT(field) offsetof(ct_config, parallelism.field)

static const config_choice reshards[] = {{"default", CT_CFG_RESHARD_DEFAULT},
                                         {"always", CT_CFG_RESHARD_ALWAYS},
                                         {"never", CT_CFG_RESHARD_NEVER},
                                         {NULL, 0}};
static const config_choice schedules[] = {{"GPipe", CT_CFG_GPIPE},
                                          {"1F1B", CT_CFG_1F1B},
                                          {"LoopedBFS", CT_CFG_LOOPED_BFS},
                                          {"Interleaved1F1B", CT_CFG_INTERLEAVED_1F1B},
                                          {"InterleavedZeroBubble", CT_CFG_INTERLEAVED_ZERO_BUBBLE},
                                          {"ZBVZeroBubble", CT_CFG_ZBV_ZERO_BUBBLE},
                                          {"DualPipeV", CT_CFG_DUAL_PIPE_V},
                                          {"Auto", CT_CFG_AUTO},
                                          {"PipelineScheduleSingle", CT_CFG_SCHEDULE_SINGLE},
                                          {"PipelineScheduleMulti", CT_CFG_SCHEDULE_MULTI},
                                          {"_PipelineScheduleRuntime", CT_CFG_SCHEDULE_RUNTIME},
                                          {NULL, 0}};
// torchtitan's None is "none" here: TOML has no other word for it.
static const config_choice balancers[] = {
    {"headtail", CT_CFG_HEADTAIL}, {"ptrr", CT_CFG_PTRR}, {"none", CT_CFG_BALANCER_NONE}, {NULL, 0}};
static const config_choice rotations[] = {{"allgather", CT_CFG_ALLGATHER}, {"alltoall", CT_CFG_ALLTOALL}, {NULL, 0}};
static const config_choice reductions[] = {{"micro_batch", CT_CFG_REDUCE_MICRO_BATCH}, {"step", CT_CFG_REDUCE_STEP}, {NULL, 0}};
static const config_choice expert_comms[] = {{"standard", CT_CFG_STANDARD}, {"deepep", CT_CFG_DEEPEP}, {NULL, 0}};

static const char with_tp[] = "parallelism.tensor_parallel_degree",
                  with_pp[] = "parallelism.pipeline_parallel_degree",
                  with_cp[] = "parallelism.context_parallel_degree", with_ep[] = "parallelism.expert_parallel_degree";

static const config_key keys[] = {
    {"parallelism", "data_parallel_replicate_degree", KEY_INT, .offset = AT(data_parallel_replicate_degree),
     .default_text = "1", .range = &config_at_least_1, .unit = "ranks", .numbers = true,
     .help = "Copies of the weights, each with its own part of the batch (DDP; HSDP with shards)."},
    {"parallelism", "data_parallel_shard_degree", KEY_INT, .offset = AT(data_parallel_shard_degree),
     .default_text = "-1", .range = &config_at_least_1_or_minus_1, .unit = "ranks", .numbers = true,
     .help = "Ranks that share one copy of the weights, each with its own part of the batch (FSDP); -1: those left "
             "over."},
    {"parallelism", "fsdp_reshard_after_forward", KEY_ENUM, .offset = AT(fsdp_reshard_after_forward),
     .default_text = "\"default\"", .choices = reshards, .use = USE_GATED,
     .why = "parallelism.data_parallel_shard_degree",
     .help = "Let go of gathered weights after the forward pass, and gather them again."},
    {"parallelism", "tensor_parallel_degree", KEY_INT, .offset = AT(tensor_parallel_degree), .default_text = "1",
     .range = &config_at_least_1, .unit = "ranks", .numbers = true,
     .help = "Ranks that share each layer's heads and hidden units."},
    {"parallelism", "disable_loss_parallel", KEY_BOOL, .offset = AT(disable_loss_parallel), .default_text = "false",
     .numbers = true, .use = USE_GATED, .why = with_tp,
     .help = "Compute the loss from whole logits, not vocabulary shards."},
    {"parallelism", "enable_async_tensor_parallel", KEY_BOOL, .offset = AT(enable_async_tensor_parallel),
     .default_text = "false", .use = USE_GATED, .why = with_tp,
     .help = "Between nodes, multiply one rank's part while the next one's is on its way; inside a node ranks read one another and nothing is sent."},
    {"parallelism", "enable_sequence_parallel", KEY_BOOL, .offset = AT(enable_sequence_parallel),
     .default_text = "true", .use = USE_GATED, .why = with_tp, .source = FROM_TITAN_MAIN,
     .help = "Cut the sequence between tensor-parallel layers."},
    {"parallelism", "pipeline_parallel_degree", KEY_INT, .offset = AT(pipeline_parallel_degree), .default_text = "1",
     .range = &config_at_least_1, .unit = "ranks", .numbers = true,
     .help = "Ranks that each hold a part of the layers."},
    {"parallelism", "module_fqns_per_model_part", KEY_STRING_LISTS, .offset = AT(module_fqns_per_model_part),
     .default_text = "[]", .use = USE_GATED, .why = with_pp,
     .help = "Modules of each stage, such as [[\"tok_embeddings\", \"layers.0\"], [\"layers.1\", \"norm\", "
             "\"output\"]]."},
    {"parallelism", "pipeline_parallel_first_stage_less_layers", KEY_INT,
     .offset = AT(pipeline_parallel_first_stage_less_layers), .default_text = "1", .range = &config_at_least_0,
     .unit = "layers", .use = USE_GATED, .why = with_pp, .help = "How many layers the embedding counts for."},
    {"parallelism", "pipeline_parallel_last_stage_less_layers", KEY_INT,
     .offset = AT(pipeline_parallel_last_stage_less_layers), .default_text = "1", .range = &config_at_least_0,
     .unit = "layers", .use = USE_GATED, .why = with_pp, .help = "How many layers the head counts for."},
    {"parallelism", "pipeline_parallel_layers_per_stage", KEY_INT, .optional = true,
     .offset = AT(pipeline_parallel_layers_per_stage), .range = &config_at_least_1, .unit = "layers",
     .use = USE_GATED, .why = with_pp,
     .help = "Layers of a stage; unset: from the model, the schedule and the degree."},
    {"parallelism", "pipeline_parallel_schedule", KEY_ENUM, .offset = AT(pipeline_parallel_schedule),
     .default_text = "\"1F1B\"", .choices = schedules, .any_case = true, .use = USE_GATED, .why = with_pp,
     .help = "Order of forwards and backwards; the last three take it from pipeline_parallel_schedule_csv, Auto (ours) searches one for the stages' costs."},
    {"parallelism", "pipeline_parallel_schedule_csv", KEY_STRING, .offset = AT(pipeline_parallel_schedule_csv),
     .default_text = "\"\"", .use = USE_GATED, .why = with_pp, .help = "CSV file of actions, one line a rank."},
    {"parallelism", "pipeline_parallel_costs_csv", KEY_STRING, .offset = AT(pipeline_parallel_costs_csv), .default_text = "\"\"", .use = USE_GATED,
     .why = with_pp, .source = FROM_US,
     .help = "For the schedule Auto: CSV file of each stage's measured seconds, as a profile writes it (pipeline_costs.csv); unset: by FLOPs."},
    {"parallelism", "pipeline_parallel_slots", KEY_INT, .offset = AT(pipeline_parallel_slots), .default_text = "0", .range = &config_at_least_0,
     .unit = "micro-batches", .use = USE_GATED, .why = with_pp, .source = FROM_US,
     .help = "For the schedule Auto: how many micro-batches the stages of a rank may save together; 0: pipeline_parallel_degree × stages of a rank, "
             "and at least twice pipeline_parallel_degree."},
    {"parallelism", "pipeline_parallel_microbatch_size", KEY_INT, .offset = AT(pipeline_parallel_microbatch_size),
     .default_text = "1", .range = &config_at_least_1, .unit = "sequences", .numbers = true, .use = USE_GATED,
     .why = with_pp, .help = "Sequences of a micro-batch in a pipeline; divides local_batch_size."},
    {"parallelism", "pipeline_parallel_expert_parallel_overlap", KEY_BOOL,
     .offset = AT(pipeline_parallel_expert_parallel_overlap), .default_text = "true", .use = USE_GATED,
     .why = with_ep, .help = "In DualPipeV, overlap one micro-batch's exchange with another's products."},
    {"parallelism", "context_parallel_degree", KEY_INT, .offset = AT(context_parallel_degree), .default_text = "1",
     .range = &config_at_least_1, .unit = "ranks", .numbers = true,
     .help = "Ranks that share each sequence."},
    {"parallelism", "context_parallel_load_balancer", KEY_ENUM, .offset = AT(context_parallel_load_balancer),
     .default_text = "\"headtail\"", .choices = balancers, .numbers = true, .built = "headtail none", .use = USE_GATED, .why = with_cp,
     .help = "How a sequence is dealt out, so that all ranks attend to equally much."},
    {"parallelism", "context_parallel_rotate_method", KEY_ENUM, .offset = AT(context_parallel_rotate_method),
     .default_text = "\"allgather\"", .choices = rotations, .numbers = true, .use = USE_GATED, .why = with_cp,
     .help = "How keys and values reach the other ranks of a sequence."},
    {"parallelism", "gradient_reduction", KEY_ENUM, .offset = AT(gradient_reduction), .default_text = "\"micro_batch\"",
     .choices = reductions, .numbers = true, .source = FROM_US,
     .help = "When ranks add their weight gradients up: after each micro-batch, in shards and in one order, or once a step, which moves less, "
             "keeps whole gradients and rounds otherwise."},
    {"parallelism", "expert_parallel_degree", KEY_INT, .offset = AT(expert_parallel_degree), .default_text = "1",
     .range = &config_at_least_1, .unit = "ranks", .numbers = true, .built = "1",
     .help = "Ranks that share the experts."},
    {"parallelism", "expert_tensor_parallel_degree", KEY_INT, .offset = AT(expert_tensor_parallel_degree),
     .default_text = "1", .range = &config_at_least_1, .unit = "ranks", .numbers = true, .built = "1",
     .help = "Ranks that share each expert: 1, or tensor_parallel_degree."},
    {"parallelism", "expert_parallel_comm_backend", KEY_ENUM, .offset = AT(expert_parallel_comm_backend),
     .default_text = "\"standard\"", .choices = expert_comms, .use = USE_GATED, .why = with_ep,
     .help = "How tokens reach their experts."},
};

const config_keys config_keys_parallelism = {keys, sizeof keys / sizeof *keys};
