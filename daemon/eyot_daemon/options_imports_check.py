"""Checks of exports and imports across accounts: known names, authorized, no duplicates, no circles."""

from __future__ import annotations

from collections.abc import Iterable

from eyot_daemon.import_templates import check_templates, pattern_of, stream_template
from eyot_daemon.options import Options
from eyot_daemon.options_accounts import AccountOptions, ExportOptions, ImportOptions
from eyot_daemon.options_reader import Reading
from eyot_wire import subject
from eyot_wire.transform import TransformError


def check_imports(options: Options, reading: Reading) -> None:
    """Raise ConfError in nats-server's words for the first import or export that cannot be."""
    accounts = {account.name: account for account in options.accounts}
    for account in options.accounts:
        for export in account.exports:
            for name in export.accounts or ():
                if name not in accounts:
                    message = f'"{name}" account not defined for {export.kind} export'
                    raise reading.error(f"export_account:{name}", message)
        local_services: dict[bytes, ImportOptions] = {}
        for index, imported in enumerate(account.imports):
            message = what_is_wrong_with_import(account, imported, accounts, local_services)
            if message:
                raise reading.error(f"import:{account.name}:{index}", message)


def what_is_wrong_with_import(
    account: AccountOptions,
    imported: ImportOptions,
    accounts: dict[str, AccountOptions],
    local_services: dict[bytes, ImportOptions],
) -> str:
    """Why `account` cannot have this import, "" if it can. `local_services` remembers what is taken among its imports."""
    exporter = accounts.get(imported.account)
    if exporter is None:
        return f'"{imported.account}" account not defined for {imported.kind} import'
    text = imported.subject.decode()
    if imported.kind == "service":
        local = imported.to or imported.subject
        earlier = local_services.setdefault(local, imported)
        if earlier is not imported:
            return (
                f'Duplicate service import subject "{local.decode()}", previously used in import for '
                f'account "{earlier.account}", subject "{earlier.subject.decode()}"'
            )
    adding = f'Error adding {imported.kind} import "{text}"'
    if not any(_authorizes(export, imported, account.name) for export in exporter.exports):
        return f"{adding}: {imported.kind} import not authorized"
    try:
        check_templates(imported)
    except TransformError as error:
        template = (imported.to or imported.prefix or imported.subject).decode()
        return f'{adding}: failed to create mapping transform to "{template}": {error}'
    if _forms_cycle(account.name, imported, accounts):
        return f"{adding}: import forms a cycle"
    return ""


def _authorizes(export: ExportOptions, imported: ImportOptions, importer: str) -> bool:
    if export.kind != imported.kind or not subject.is_subset(imported.subject, export.subject):
        return False
    if export.accounts is not None and importer not in export.accounts:
        return False
    position = export.account_token_position
    return not position or subject.tokens(imported.subject)[position - 1] == importer.encode()


def local_subject(imported: ImportOptions) -> bytes:
    """The subject (with wildcards) under which the importing account knows an import."""
    return pattern_of(stream_template(imported))


def _forms_cycle(importer: str, imported: ImportOptions, accounts: dict[str, AccountOptions]) -> bool:
    """Follow imports from the exporter on: does one that feeds this import lead back to the importer?"""
    pending = [(imported.account, imported.subject)]
    seen: set[tuple[str, bytes]] = set()
    while pending:
        name, wanted = pending.pop()
        if (name, wanted) in seen:
            continue
        seen.add((name, wanted))
        for further in _feeding(accounts[name].imports, imported.kind, wanted):
            if further.account == importer and subject.overlaps(further.subject, local_subject(imported)):
                return True
            if further.account in accounts and further.account != importer:
                pending.append((further.account, further.subject))
    return False


def _feeding(imports: Iterable[ImportOptions], kind: str, wanted: bytes) -> Iterable[ImportOptions]:
    return (further for further in imports if further.kind == kind and subject.overlaps(local_subject(further), wanted))
