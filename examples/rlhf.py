"""Reinforcement learning from human feedback with TRL, small: four steps, of which each reads what earlier ones wrote.

    torchrun rlhf.py sft        a language model learns the text; writes models/sft
    torchrun rlhf.py reward     a reward model, made of models/sft, learns to prefer words of letters.txt to words of the
                                other files; writes models/reward
    torchrun rlhf.py policy     models/sft learns by RLOO to please models/reward; writes models/policy
    python3 rlhf.py compare     mean rewards of both language models

TRL has no PPO trainer any more. RLOO is its maintained trainer for rewards that a model gives; GRPOTrainer has the same
arguments. The preferences are made up from the text: put pairs of your own in their place.
A step that starts again continues from its newest checkpoint in its folder.
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path

import torch
from datasets import Dataset, disable_progress_bars
from headway_train import report
from tiny_llm import DATA, SEED, build_model, build_tokenizer, read_text
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    PrinterCallback,
    Trainer,
    TrainerCallback,
    set_seed,
)
from trl import RewardConfig, RewardTrainer, RLOOConfig, RLOOTrainer, SFTConfig, SFTTrainer

PROMPT_WORDS, ANSWER_WORDS = 6, 8


class Report(TrainerCallback):
    """Reports to Headway what the trainer logs."""

    def on_log(self, _args: object, state: object, _control: object, logs: dict[str, float], **_: object) -> None:
        loss = logs.get("loss")
        if loss is not None:
            report(step=state.global_step, loss=float(loss), reward=logs.get("reward"))
            if state.is_world_process_zero:
                reward = f" reward {float(logs['reward']):.3f}" if "reward" in logs else ""
                print(f"step {state.global_step} loss {float(loss):.3f}{reward}", flush=True)


def settings(options: argparse.Namespace, folder: Path) -> dict[str, object]:
    """Returns the settings that all three trainers share."""
    on_gpu = torch.cuda.is_available()
    return {
        "output_dir": str(folder),
        "max_steps": options.steps,
        "per_device_train_batch_size": options.batch,
        "learning_rate": options.lr,
        "save_steps": options.checkpoint_every,
        "save_total_limit": 2,
        "logging_steps": options.log_every,
        "report_to": "none",
        "disable_tqdm": True,
        "use_cpu": not on_gpu,
        "bf16": on_gpu,
        "gradient_checkpointing": on_gpu,
        "seed": SEED,
    }


def newest_checkpoint(folder: Path) -> str | None:
    """Returns the newest complete checkpoint of a trainer; trainer_state.json is the file that it writes last."""
    found = [state.parent for state in folder.glob("checkpoint-*/trainer_state.json")]
    return str(max(found, key=lambda place: int(place.name.rpartition("-")[2]))) if found else None


def run(trainer: Trainer, folder: Path) -> None:
    """Trains, from the newest checkpoint if there is one, and writes the model and its tokenizer to the folder."""
    checkpoint = newest_checkpoint(folder)
    if checkpoint and trainer.is_world_process_zero():
        print(f"continues after step {checkpoint.rpartition('-')[2]}", flush=True)
    trainer.remove_callback(PrinterCallback)  # Report prints
    trainer.train(resume_from_checkpoint=checkpoint)
    trainer.save_model(str(folder))
    if trainer.is_world_process_zero():
        print(f"written: {folder}", flush=True)


def texts() -> Dataset:
    """Returns short parts of the text."""
    words, length = read_text(DATA).split(), PROMPT_WORDS + ANSWER_WORDS
    return Dataset.from_list([{"text": " ".join(words[at : at + length])} for at in range(0, len(words) - length, 4)])


def preferences() -> Dataset:
    """Returns made-up preferences: for each "prompt", words of the letters are "chosen", words of other files "rejected"."""
    files = {path.name: path.read_text(encoding="utf-8").split() for path in sorted(DATA.glob("*.txt"))}
    liked = files.pop("letters.txt")
    others = [word for words in files.values() for word in words]
    draw, rows = random.Random(SEED), []
    for _ in range(500):
        ask = draw.randrange(len(others) - PROMPT_WORDS)
        row = {"prompt": " ".join(others[ask : ask + PROMPT_WORDS])}
        for name, words in (("chosen", liked), ("rejected", others)):
            at = draw.randrange(len(words) - ANSWER_WORDS)
            row[name] = " " + " ".join(words[at : at + ANSWER_WORDS])
        rows.append(row)
    return Dataset.from_list(rows)


def sft(options: argparse.Namespace, models: Path) -> None:
    """Supervised fine-tuning. With a model of your own: SFTTrainer("FOLDER", ...)."""
    tokenizer = build_tokenizer()
    args = SFTConfig(**settings(options, models / "sft"), max_length=options.context)
    model = build_model(tokenizer, width=options.width)
    run(
        SFTTrainer(model, args, train_dataset=texts(), processing_class=tokenizer, callbacks=[Report()]), models / "sft"
    )


def reward(options: argparse.Namespace, models: Path) -> None:
    """A reward model: the fine-tuned one with one number as its output."""
    tokenizer = AutoTokenizer.from_pretrained(models / "sft")
    model = AutoModelForSequenceClassification.from_pretrained(models / "sft", num_labels=1)
    args = RewardConfig(**settings(options, models / "reward"), max_length=options.context)
    trainer = RewardTrainer(model, args, train_dataset=preferences(), processing_class=tokenizer, callbacks=[Report()])
    run(trainer, models / "reward")


def policy(options: argparse.Namespace, models: Path) -> None:
    """Reinforcement learning: the fine-tuned model answers prompts, the reward model judges the answers."""
    tokenizer = AutoTokenizer.from_pretrained(models / "sft", padding_side="left")
    args = RLOOConfig(
        **settings(options, models / "policy"), num_generations=options.batch, max_completion_length=2 * ANSWER_WORDS
    )
    trainer = RLOOTrainer(
        str(models / "sft"),
        str(models / "reward"),
        args,
        train_dataset=preferences().select_columns(["prompt"]),
        processing_class=tokenizer,
        callbacks=[Report()],
    )
    run(trainer, models / "policy")


@torch.inference_mode()
def compare(_: argparse.Namespace, models: Path) -> None:
    """Prints the mean reward of the answers of the fine-tuned model and of the one after reinforcement learning."""
    tokenizer = AutoTokenizer.from_pretrained(models / "sft", padding_side="left")
    judge = AutoModelForSequenceClassification.from_pretrained(models / "reward").eval()
    prompts = preferences()["prompt"][:64]
    asked = tokenizer(prompts, return_tensors="pt", padding=True)
    for name in ("sft", "policy"):
        set_seed(SEED)
        model = AutoModelForCausalLM.from_pretrained(models / name).eval()
        answers = model.generate(**asked, do_sample=True, max_new_tokens=2 * ANSWER_WORDS)
        texts = tokenizer.batch_decode(answers, skip_special_tokens=True)
        judged = tokenizer(texts, return_tensors="pt", padding=True)
        print(f"{name}: mean reward {judge(**judged).logits.mean().item():.3f} of {len(texts)} answers", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="The steps of rlhf.yaml.")
    parser.add_argument("step", choices=["sft", "reward", "policy", "compare"])
    parser.add_argument("--models", type=Path, default=Path("models"), help="folder of all models")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--batch", type=int, default=4, help="samples per rank; answers per prompt of the policy")
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--context", type=int, default=64)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--checkpoint-every", type=int, default=20, metavar="STEPS")
    parser.add_argument("--log-every", type=int, default=5, metavar="STEPS")
    options = parser.parse_args()
    set_seed(SEED)
    disable_progress_bars()
    {"sft": sft, "reward": reward, "policy": policy, "compare": compare}[options.step](options, options.models)
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
