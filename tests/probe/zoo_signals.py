"""Sound, time series, image and text, and diffusion models, from `transformers` and `diffusers` configurations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from probe.trainable import SAMPLES, Trainable, gaussian, images, labels, random, some_hidden, tokens
from probe.zoo_images import CLASSES, TRANSFORMER, from_config

SPECIAL = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}


def sound(length: int = 1600) -> Tensor:
    """Chirps with some noise, standardized; each starts at another pitch."""
    time = torch.linspace(0, 1, length)
    pitch = torch.linspace(20, 160, SAMPLES)[:, None]
    waves = torch.sin(2 * torch.pi * (pitch * time + 20 * time.square())) + 0.1 * gaussian(SAMPLES, length)
    return (waves - waves.mean(1, keepdim=True)) / waves.std(1, keepdim=True)


def walks(length: int, channels: int) -> Tensor:
    """Random walks, standardized."""
    steps = gaussian(SAMPLES, length, channels).cumsum(1)
    return (steps - steps.mean((0, 1))) / steps.std((0, 1))


def _sounds() -> dict[str, Tensor]:
    return {"input_values": sound(), "labels": labels(4)}


def _spectrogram() -> Tensor:
    """Log magnitudes over frequency and time, standardized."""
    bins = torch.stft(sound(1984), 62, 31, window=torch.hann_window(62), return_complex=True).abs()
    logs = (bins[..., :64] + 1e-2).log()
    return (logs - logs.mean()) / logs.std()


def _speech() -> dict[str, Tensor]:
    return {"input_features": _spectrogram(), "labels": tokens(50, 8)}


def _series() -> dict[str, Tensor]:
    values = walks(40, 3)
    return {"past_values": values[:, :32], "future_values": values[:, 32:]}


def _stamped_series() -> dict[str, Tensor]:
    values = walks(40, 1)[..., 0]
    hours = torch.linspace(-0.5, 0.5, 40).expand(SAMPLES, 40)[..., None]
    return {
        "past_values": values[:, :32], "past_time_features": hours[:, :32], "past_observed_mask": torch.ones(SAMPLES, 32),
        "future_values": values[:, 32:], "future_time_features": hours[:, 32:],
    }  # fmt: skip


def _pictures_and_words() -> dict[str, Any]:
    return {"input_ids": tokens(100, 12), "pixel_values": images(), "return_loss": True}


def _diffused(size: int, channels: int) -> tuple[Tensor, Tensor, Tensor]:
    """Images with noise, the times that tell how much, and the noise itself."""
    noise = gaussian(SAMPLES, channels, size, size, seed=1)
    time = torch.randint(0, 1000, (SAMPLES,), generator=random())
    kept = torch.cos(time / 1000 * torch.pi / 2)[:, None, None, None]
    clean = images(size) if channels == 3 else gaussian(SAMPLES, channels, size, size)
    return kept * clean + (1 - kept.square()).sqrt() * noise, time, noise


def _noisy(size: int, channels: int, inputs: str = "sample", **more: Tensor) -> Callable[[], dict[str, Tensor]]:
    def batch() -> dict[str, Tensor]:
        sample, time, _ = _diffused(size, channels)
        return {inputs: sample, "timestep": time, **more}

    return batch


def _noise(size: int, channels: int) -> Callable[[], Tensor]:
    return lambda: _diffused(size, channels)[2]


def quantized(output: Any, target: Tensor) -> Tensor:
    """Squared error, and how far the codes are from what they stand for."""
    loss: Tensor = F.mse_loss(output.sample, target) + output.commit_loss
    return loss


def _from_diffusers(model: str, **options: Any) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        import diffusers

        made: nn.Module = getattr(diffusers, model)(**options)
        return made

    return build


def _hf(model: str, config: str, batch: Callable[[], Any], *, rate: float = 1e-3, **options: Any) -> Trainable:
    return Trainable(from_config(model, config, **options), batch, {}, None, rate, "transformers")


SPEECH = {**TRANSFORMER, "conv_dim": [32, 32, 32], "conv_stride": [5, 2, 2], "conv_kernel": [10, 3, 2],
          "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 4, "mask_time_prob": 0.0, "num_labels": 4,
          "classifier_proj_size": 32}  # fmt: skip
UNET = {"block_out_channels": (16, 32), "norm_num_groups": 8, "layers_per_block": 1}

SIGNALS: dict[str, Trainable] = {
    "Wav2Vec 2": _hf("Wav2Vec2ForSequenceClassification", "Wav2Vec2Config", _sounds, **SPEECH),
    "HuBERT": _hf("HubertForSequenceClassification", "HubertConfig", _sounds, **SPEECH),
    "AST": Trainable(
        from_config("ASTForAudioClassification", "ASTConfig", **TRANSFORMER, patch_size=8, frequency_stride=8,
                    time_stride=8, max_length=64, num_mel_bins=32, num_labels=CLASSES),
        lambda: _spectrogram().transpose(1, 2), {}, labels, 1e-3, "transformers",
    ),
    "Whisper": _hf(
        "WhisperForConditionalGeneration", "WhisperConfig", _speech, **SPECIAL, vocab_size=50, num_mel_bins=32,
        d_model=48, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4,
        encoder_ffn_dim=96, decoder_ffn_dim=96, max_source_positions=32, max_target_positions=16,
        decoder_start_token_id=1,
    ),
    "PatchTST": _hf(
        "PatchTSTForPrediction", "PatchTSTConfig", _series, num_input_channels=3, context_length=32, patch_length=8,
        patch_stride=4, prediction_length=8, d_model=32, num_attention_heads=4, ffn_dim=64, num_hidden_layers=2,
        loss="mse",
    ),
    "PatchTSMixer": _hf(
        "PatchTSMixerForPrediction", "PatchTSMixerConfig", _series, num_input_channels=3, context_length=32,
        patch_length=8, patch_stride=8, prediction_length=8, d_model=24, num_layers=3, loss="mse",
    ),
    "Time series transformer": _hf(
        "TimeSeriesTransformerForPrediction", "TimeSeriesTransformerConfig", _stamped_series, prediction_length=8,
        context_length=25, num_time_features=1, lags_sequence=[1, 2, 7], d_model=32, encoder_layers=2,
        decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=64,
        decoder_ffn_dim=64, scaling="std", distribution_output="normal",
    ),
    "CLIP": _hf(
        "CLIPModel", "CLIPConfig", _pictures_and_words, projection_dim=32,
        text_config={**TRANSFORMER, **SPECIAL, "vocab_size": 100, "max_position_embeddings": 16},
        vision_config={**TRANSFORMER, "image_size": 32, "patch_size": 8},
    ),
    "Perceiver": Trainable(
        from_config("PerceiverForMaskedLM", "PerceiverConfig", vocab_size=100, max_position_embeddings=16,
                    num_latents=8, d_latents=48, d_model=48, num_self_attends_per_block=2, num_self_attention_heads=4,
                    num_cross_attention_heads=4),
        lambda: some_hidden(tokens(100), mask=3)["input_ids"], {}, lambda: tokens(100), 1e-3, "transformers", 400,
    ),
    "UNet2DModel": Trainable(
        _from_diffusers("UNet2DModel", sample_size=16, down_block_types=("DownBlock2D", "AttnDownBlock2D"),
                        up_block_types=("AttnUpBlock2D", "UpBlock2D"), attention_head_dim=8, **UNET),
        _noisy(16, 3), {}, _noise(16, 3), 1e-3, "diffusers",
    ),
    "UNet2DConditionModel": Trainable(
        _from_diffusers("UNet2DConditionModel", sample_size=16, in_channels=4, out_channels=4,
                        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
                        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"), cross_attention_dim=24,
                        attention_head_dim=8, **UNET),
        _noisy(16, 4, encoder_hidden_states=gaussian(SAMPLES, 6, 24)), {}, _noise(16, 4), 1e-3, "diffusers",
    ),
    "DiT, diffusers": Trainable(
        _from_diffusers("DiTTransformer2DModel", sample_size=16, in_channels=3, out_channels=3, num_layers=3,
                        attention_head_dim=12, num_attention_heads=4, patch_size=4),
        _noisy(16, 3, "hidden_states", class_labels=labels()), {}, _noise(16, 3), 1e-3, "diffusers",
    ),
    "AutoencoderKL": Trainable(
        _from_diffusers("AutoencoderKL", down_block_types=("DownEncoderBlock2D", "DownEncoderBlock2D"),
                        up_block_types=("UpDecoderBlock2D", "UpDecoderBlock2D"), sample_size=16, **UNET),
        lambda: images(16), {}, lambda: images(16), 1e-3, "diffusers",
    ),
    "VQModel": Trainable(
        _from_diffusers("VQModel", down_block_types=("DownEncoderBlock2D", "DownEncoderBlock2D"),
                        up_block_types=("UpDecoderBlock2D", "UpDecoderBlock2D"), sample_size=16, **UNET),
        lambda: images(16), {"target": images(16), "loss": quantized}, None, 1e-3, "diffusers",
    ),
}  # fmt: skip
