"""What one of two schedulers knows of the journal of durable jobs, its own and the partner's copy of it."""

from scaler.common.records import record


@record
class PairJournal:
    """Filled in by who keeps the jobs and copies the journal; says if the lead can be handed over."""

    #: the partner has a copy in a directory of its own; and all that counts is in it
    is_copied: bool = False
    is_copy_in_step: bool = False
    #: durable jobs are kept here, and the partner has said that it keeps none, or can't
    partner_keeps_none: bool = False
    #: durable jobs wait here until it is known that the partner has no newer copy
    is_held: bool = False
    #: it is being opened here
    is_opening: bool = False

    def forget_partner(self) -> None:
        """This one has stepped down: only who leads knows of the partner's copy."""
        self.is_copied = self.is_copy_in_step = self.partner_keeps_none = False

    def why_not_handed_over(self, is_forced: bool) -> str:
        """Why the partner can't be asked to lead, empty if it can; `is_forced`: whatever its copy lacks."""
        if self.is_opening:
            return "the journal of durable jobs is being opened: try again when the log says how many it has"
        if self.is_copied and not self.is_copy_in_step and not is_forced:
            return "the copy of the journal at the other scheduler is not in step yet: try again when the log says so"
        if self.partner_keeps_none and not is_forced:
            return (
                "the other scheduler can't keep the durable jobs of this one: its log says why, or it needs --journal "
                "DIRECTORY (scaler promote has it lead without them)"
            )
        return ""
