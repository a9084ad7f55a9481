"""`eyot completion`: what a shell needs to complete commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from eyot_cli.terminal.show import print_payload

#: The variable by which a shell asks.
ASKED_BY = "_EYOT_COMPLETE"


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the completion script for SHELL.

    bash: eval "$(eyot completion bash)" in ~/.bashrc. zsh: eval "$(eyot completion zsh)" in ~/.zshrc, after
    compinit. fish: eyot completion fish | source in ~/.config/fish/config.fish.
    """
    made = get_completion_class(shell)
    assert made is not None, "click knows it"
    print_payload(made(context.find_root().command, {}, "eyot", ASKED_BY).source())
