"""The commented file that `headway init` writes."""

from __future__ import annotations

from headway.catalog.releases import DEFAULT_IMAGE, images_in_words
from headway.errors import Fault, InvalidSpec
from headway.validation import syntax_rules

_TEXT = """\
# A Slurm cluster for AI training. `headway plan FILE` shows what would change, `headway apply FILE` does it.
# Only name, plan and nodes are needed; what else is here shows its default or an example.
# There is more: groups that scale, a second head, volumes, backups, secrets, prices, health. Every field: headway schema

name: {name}
provider: local          # machines on this computer, with simulated GPUs; or ssh: machines of yours, listed under hosts
image: {image}          # {images}

plan: h100-8             # what a node has: h100-8, h200-8, a100-8, l40s-4, b200-8, cpu-64, or one of your own catalogue
nodes: 4                 # nodes for jobs; without the head
spares: 1                # kept ready, take over a failed node's place

fabric:
  leaf_size: 4           # nodes under one leaf switch; a job is placed under as few as possible

# Your public keys, so that plain ssh works. (headway's own commands don't need one.)
# ssh_keys: [~/.ssh/id_ed25519.pub]

storage:
  home: {{}}               # /home, the same on every machine
  scratch: {{}}            # /scratch, for checkpoints
  # datasets:
  #   - {{name: tiny, path: ./data/tiny, mount: /datasets/tiny}}   # read-only unless you say read_only: false

partitions:
  train:
    default: true
    max_time: "7-00:00:00"       # days-hours:minutes:seconds
    default_time: "1-00:00:00"   # for jobs that ask for no time
  debug:
    nodes: 1                     # the first node only
    max_time: "02:00:00"
  # `urgent` requeues jobs of train and debug.
  # urgent: {{preempts: [train, debug], teams: [vision], default_time: "1-00:00:00"}}

# With no teams there is one, "default", and you are in it. A team is a Slurm account with a share and caps.
# teams:
#   vision:
#     users: [alice, bob]
#     share: 60
#     limits: {{gpu_hours: {{hours: 720, per: month}}, running_jobs: 50, gpus: 16}}
#   speech: {{users: [carol], share: 40}}
# users:
#   alice: {{ssh_keys: [./keys/alice.pub]}}
# departures: {{jobs: cancel}}     # jobs of a user you remove: cancel, or finish

# mail: {{relay: "mail.example.org:25"}}   # where --mail-type mail goes
# alerts: {{webhook: "https://example.org/alerts", chat: "https://chat.example.org/hooks/...", mail: oncall@example.org}}
# slurm: {{PriorityWeightAge: 2000}}       # further slurm.conf keys; the list is in the schema
"""


def starting_file(name: str) -> str:
    """Returns a commented cluster file that is valid without changes. Raises InvalidSpec for an invalid cluster name."""
    problem = syntax_rules.cluster_name_fault(name)
    if problem:
        raise InvalidSpec([Fault("name", problem)])
    return _TEXT.format(name=name, image=DEFAULT_IMAGE, images=images_in_words())
