// A tokenizer as the loader and the corpus builder take it. One place for it, so that a corpus built by `ctitan data build`, a run that
// reads it and a saved state agree on what the same tokenizer is.
#pragma once
#include "data/data.h"
#include "tokenizer/tokenizer.h"

typedef struct ct_data_tokens ct_data_tokens;

// Makes contexts for `threads` threads that may encode at the same time. The tokenizer is borrowed. Caller destroys, after the loaders
// that use it.
ct_status ct_data_tokens_create(const ct_tokenizer *tokenizer, int threads, ct_data_tokens **out_tokens);
void ct_data_tokens_destroy(ct_data_tokens *tokens); // NULL is fine

// The encoder: text as torchtitan encodes it (special tokens that are spelled out count as such), BOS and EOS of the tokenizer, the
// fingerprint of its file and its tokens, may_cut where it is known to be right. vocab_size: the model's; 0: the tokenizer's
// own. Borrows tokens.
ct_data_encoder ct_data_tokens_encoder(ct_data_tokens *tokens, int32_t vocab_size);
