"""Checks of exports and imports across accounts: known names, authorized, no duplicates, no circles."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from eyot_daemon.config.accounts import AccountOptions, ExportOptions, ImportOptions
from eyot_daemon.config.import_templates import check_templates, pattern_of, stream_template
from eyot_daemon.config.options import Options
from eyot_daemon.config.reader import Reading
from eyot_wire import subject
from eyot_wire.transform import TransformError
from eyot_wire.trust.jwt_account import EVERYBODY


def check_imports(options: Options, reading: Reading) -> None:
    """Raise ConfError in nats-server's words for the first import or export that cannot be."""
    accounts = {account.name: account for account in options.accounts}
    check = ImportCheck(accounts)
    for account in options.accounts:
        for export in account.exports:
            for name in export.accounts or ():
                if name not in accounts:
                    message = f'"{name}" account not defined for {export.kind} export'
                    raise reading.error(f"export_account:{name}", message)
        for index, imported in enumerate(account.imports):
            message = check.add(account.name, imported)
            if message:
                raise reading.error(f"import:{account.name}:{index}", message)


class ImportCheck:
    """Checks the imports of `accounts` one after the other, as nats-server does: each together with the preceding ones."""

    def __init__(self, accounts: Mapping[str, AccountOptions]) -> None:
        self._accounts = accounts
        self._taken: dict[str, list[ImportOptions]] = {name: [] for name in accounts}

    def add(self, importer: str, imported: ImportOptions) -> str:
        """Return why the account `importer` cannot have this import; "" if it has it now."""
        wrong = self._what_is_wrong(importer, imported)
        if not wrong:
            self._taken[importer].append(imported)
        return wrong

    def _what_is_wrong(self, importer: str, imported: ImportOptions) -> str:
        exporter = self._accounts.get(imported.account)
        if exporter is None:
            return f'"{imported.account}" account not defined for {imported.kind} import'
        text = imported.subject.decode()
        if imported.kind == "service":
            local = imported.to or imported.subject
            for earlier in self._imports(importer, "service"):
                # Of different accounts they are one request to each: the first answer counts.
                if earlier.account == imported.account and (earlier.to or earlier.subject) == local:
                    return (
                        f'Duplicate service import subject "{local.decode()}", previously used in import for '
                        f'account "{earlier.account}", subject "{earlier.subject.decode()}"'
                    )
        adding = f'Error adding {imported.kind} import "{text}"'
        if not _approved(exporter.exports, imported, importer):
            return f"{adding}: {imported.kind} import not authorized"
        try:
            check_templates(imported)
        except TransformError as error:
            template = (imported.to or imported.prefix or imported.subject).decode()
            return f'{adding}: failed to create mapping transform to "{template}": {error}'
        if self._forms_cycle(importer, imported):
            return f"{adding}: import forms a cycle"
        if imported.kind == "stream":
            same = (imported.account, imported.subject)
            if any((earlier.account, earlier.subject) == same for earlier in self._imports(importer, "stream")):
                return f"{adding}: stream import already exists"
        return ""

    def _imports(self, name: str, kind: str) -> list[ImportOptions]:
        return [imported for imported in self._taken.get(name, ()) if imported.kind == kind]

    def _forms_cycle(self, importer: str, imported: ImportOptions) -> bool:
        """nats-server's rule: follow imports from the exporter on until one leads back. It errs on the side of caution."""
        local = local_subject(imported)
        if imported.kind == "service":
            return self._services_lead_back(imported.account, local, {importer})
        return any(self._streams_lead_back(imported.account, end, {importer}) for end in (local, imported.subject))

    def _services_lead_back(self, name: str, wanted: bytes, visited: set[str]) -> bool:
        for further in self._imports(name, "service"):
            if subject.overlaps(wanted, further.subject):
                if further.account in visited:
                    return True
                visited.add(name)
                if self._services_lead_back(further.account, _narrower(local_subject(further), wanted), visited):
                    return True
        return False

    def _streams_lead_back(self, name: str, wanted: bytes, visited: set[str]) -> bool:
        exports = self._accounts[name].exports
        if not any(export.kind == "stream" and subject.is_subset(wanted, export.subject) for export in exports):
            return False
        for further in self._imports(name, "stream"):
            local = local_subject(further)
            if subject.overlaps(wanted, local):
                if further.account in visited:
                    return True
                visited.add(name)
                if self._streams_lead_back(further.account, _narrower(local, wanted), visited):
                    return True
        return False


def _narrower(local: bytes, wanted: bytes) -> bytes:
    return local if subject.is_subset(local, wanted) else wanted


def _approved(exports: Iterable[ExportOptions], imported: ImportOptions, importer: str) -> bool:
    """Return whether an import is allowed: by the export of the very same subject if there is one, else by one that covers it."""
    of_kind = [export for export in exports if export.kind == imported.kind]
    same = [export for export in of_kind if export.subject == imported.subject]
    if same:  # one: `merged_exports`
        return _authorizes(same[-1], imported, importer, exact=True)
    return any(
        _authorizes(export, imported, importer, exact=False)
        for export in of_kind
        if subject.is_subset(imported.subject, export.subject)
    )


def _authorizes(export: ExportOptions, imported: ImportOptions, importer: str, *, exact: bool) -> bool:
    """Return whether an export allows an import, as nats-server's `checkAuth`.

    A token position of the account's name decides alone; then activations count, then names.
    """
    if export.account_token_position:
        tokens = subject.tokens(imported.subject)
        return not exact and tokens[export.account_token_position - 1 :][:1] == [importer.encode()]
    if export.token_required:
        return imported.activated_at is not None and not _revoked(export, importer, imported.activated_at)
    return export.accounts is None or importer in export.accounts


def _revoked(export: ExportOptions, importer: str, issued_at: int) -> bool:
    return any(name in (importer, EVERYBODY) and at >= issued_at for name, at in export.revocations)


def local_subject(imported: ImportOptions) -> bytes:
    """Return the subject (with wildcards) under which the importing account sees an import."""
    return pattern_of(stream_template(imported))
