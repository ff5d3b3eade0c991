"""Writes a language model of half a megabyte with random weights: what it says is noise, how it is served is real."""

import gguf
import numpy as np

WIDTH, LAYERS, HEADS, INNER = 64, 2, 4, 128
CONTEXT_TOKENS = 65_536


def write(path):
    random = np.random.default_rng(7)
    # Three special tokens, and one for each byte.
    tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256)]
    kinds = [gguf.TokenType.UNKNOWN, gguf.TokenType.CONTROL, gguf.TokenType.CONTROL]
    kinds += [gguf.TokenType.BYTE] * 256
    model = gguf.GGUFWriter(path, "llama")
    model.add_context_length(CONTEXT_TOKENS)
    model.add_embedding_length(WIDTH)
    model.add_block_count(LAYERS)
    model.add_feed_forward_length(INNER)
    model.add_head_count(HEADS)
    model.add_head_count_kv(HEADS)
    model.add_layer_norm_rms_eps(1e-5)
    model.add_rope_dimension_count(WIDTH // HEADS)
    model.add_vocab_size(len(tokens))
    model.add_tokenizer_model("llama")
    model.add_token_list(tokens)
    model.add_token_scores([0.0] * len(tokens))
    model.add_token_types(kinds)
    model.add_bos_token_id(1)
    model.add_eos_token_id(2)
    model.add_unk_token_id(0)
    model.add_chat_template("{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}")

    def matrix(name, rows, columns):
        model.add_tensor(name, random.normal(0, 0.05, (rows, columns)).astype(np.float32))

    def ones(name):
        model.add_tensor(name, np.ones(WIDTH, dtype=np.float32))

    matrix("token_embd.weight", len(tokens), WIDTH)
    ones("output_norm.weight")
    matrix("output.weight", len(tokens), WIDTH)
    for layer in range(LAYERS):
        block = f"blk.{layer}"
        ones(f"{block}.attn_norm.weight")
        ones(f"{block}.ffn_norm.weight")
        for part in ["q", "k", "v", "output"]:
            matrix(f"{block}.attn_{part}.weight", WIDTH, WIDTH)
        matrix(f"{block}.ffn_gate.weight", INNER, WIDTH)
        matrix(f"{block}.ffn_up.weight", INNER, WIDTH)
        matrix(f"{block}.ffn_down.weight", WIDTH, INNER)
    model.write_header_to_file()
    model.write_kv_data_to_file()
    model.write_tensors_to_file()
    model.close()
