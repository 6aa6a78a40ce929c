"""A Llama written from its formulas in plain PyTorch, in any dtype: no fused kernel, an explicit mask, gradients by autograd.

Weights are a dict by torchtitan's names, rows of wq and wk in its interleaved rotary order (pairs 2i, 2i+1 of a head).
B batch, T positions, H heads, G key-value heads, K a head's dim.
"""
import math
import torch

def ffn_hidden(dim, multiple_of=256, multiplier=None):
    hidden = int(2 * (4 * dim) / 3)
    hidden = hidden if multiplier is None else int(multiplier * hidden)
    return multiple_of * -(-hidden // multiple_of)

def rope_frequencies(head_dim, theta, scaling=None, dtype=torch.float64):
    """The angle a position adds, for each pair of a head. scaling: Llama 3.1's, or None."""
    freqs = 1.0 / theta ** (torch.arange(0, head_dim, 2, dtype=dtype) / head_dim)
    if scaling is None:
        return freqs
    factor, low, high, original = (scaling[k] for k in ("scaling_factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"))
    out = []
    for f in freqs.tolist():
        wavelength = 2 * math.pi / f
        if wavelength < original / high:
            out.append(f)
        elif wavelength > original / low:
            out.append(f / factor)
        else:
            smooth = (original / wavelength - low) / (high - low)
            out.append((1 - smooth) * f / factor + smooth * f)
    return torch.tensor(out, dtype=dtype)

def rotate(x_BTHK, angles_BTK):
    pairs = x_BTHK.reshape(*x_BTHK.shape[:-1], -1, 2)
    c, s = torch.cos(angles_BTK)[:, :, None], torch.sin(angles_BTK)[:, :, None]
    even, odd = pairs[..., 0], pairs[..., 1]
    return torch.stack([even * c - odd * s, even * s + odd * c], dim=-1).flatten(-2)

def rms_norm(x, weight, eps):
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + eps) * weight

def documents(tokens_BT, eos):
    """Each position's document number and its position in it: a document ends with its EOS."""
    ends = (tokens_BT == eos).long()
    doc = torch.cumsum(ends, 1) - ends
    index = torch.arange(tokens_BT.shape[1]).expand_as(doc)
    start = torch.stack([torch.searchsorted(row.contiguous(), row.contiguous()) for row in doc])
    return doc, index - start

def causal_mask(tokens_BT, doc_BT=None):
    T = tokens_BT.shape[1]
    mask = torch.ones(T, T, dtype=torch.bool).tril().expand(tokens_BT.shape[0], T, T)
    return mask if doc_BT is None else mask & (doc_BT[:, :, None] == doc_BT[:, None, :])

def forward(w, args, tokens_BT, positions_BT=None, mask_BTT=None, angles_BTK=None):
    """Logits [B, T, vocab]. args: dim, n_layers, n_heads, n_kv_heads, norm_eps, rope_theta, rope_scaling_args (or None)."""
    B, T = tokens_BT.shape
    H, G, eps = args["n_heads"], args["n_kv_heads"] or args["n_heads"], args["norm_eps"]
    K = args["dim"] // H
    dtype = w["tok_embeddings.weight"].dtype
    if positions_BT is None:
        positions_BT = torch.arange(T).expand(B, T)
    if mask_BTT is None:
        mask_BTT = causal_mask(tokens_BT)
    if angles_BTK is None:
        angles_BTK = positions_BT[..., None].to(dtype) * rope_frequencies(K, args["rope_theta"], args.get("rope_scaling_args"), dtype)
    x = w["tok_embeddings.weight"][tokens_BT]
    for i in range(args["n_layers"]):
        p = f"layers.{i}."
        h = rms_norm(x, w[p + "attention_norm.weight"], eps)
        q, k, v = ((h @ w[f"{p}attention.w{n}.weight"].T).view(B, T, -1, K) for n in "qkv")
        q, k = rotate(q, angles_BTK), rotate(k, angles_BTK)
        k, v = k.repeat_interleave(H // G, dim=2), v.repeat_interleave(H // G, dim=2)
        scores = torch.einsum("bthk,bshk->bhts", q, k) / math.sqrt(K)
        scores = scores.masked_fill(~mask_BTT[:, None], -math.inf)
        a = torch.einsum("bhts,bshk->bthk", torch.softmax(scores, -1), v).reshape(B, T, -1)
        x = x + a @ w[p + "attention.wo.weight"].T
        h = rms_norm(x, w[p + "ffn_norm.weight"], eps)
        gate, up = h @ w[p + "feed_forward.w1.weight"].T, h @ w[p + "feed_forward.w3.weight"].T
        x = x + (gate * torch.sigmoid(gate) * up) @ w[p + "feed_forward.w2.weight"].T
    return rms_norm(x, w["norm.weight"], eps) @ w.get("output.weight", w["tok_embeddings.weight"]).T

def loss_sum(logits, labels):
    """Sum over valid labels (not -100) of -log softmax(logits)[label]."""
    valid = labels != -100
    picked = logits.gather(-1, labels.clamp(min=0)[..., None])[..., 0]
    return ((torch.logsumexp(logits, -1) - picked) * valid).sum()

def from_hf(state, args):
    """Hugging Face's names and half-split rotary rows to torchtitan's."""
    names = {"self_attn.q_proj": "attention.wq", "self_attn.k_proj": "attention.wk", "self_attn.v_proj": "attention.wv",
             "self_attn.o_proj": "attention.wo", "mlp.gate_proj": "feed_forward.w1", "mlp.up_proj": "feed_forward.w3",
             "mlp.down_proj": "feed_forward.w2", "input_layernorm": "attention_norm", "post_attention_layernorm": "ffn_norm",
             "model.embed_tokens": "tok_embeddings", "model.norm": "norm", "lm_head": "output", "model.layers": "layers"}
    out = {}
    for key, value in state.items():
        for old, new in names.items():
            key = key.replace(old, new)
        if "attention.wq" in key or "attention.wk" in key:
            rows, cols = value.shape
            K = args["dim"] // args["n_heads"]
            value = value.view(rows // K, 2, K // 2, cols).transpose(1, 2).reshape(rows, cols)
        out[key] = value
    return out
