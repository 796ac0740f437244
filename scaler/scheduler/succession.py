"""Which of two schedulers leads: one hands out rows, the other stands by, and follows who the agents are that count.

Pure. Whoever has the clock and the connections tells it of both, and does what its `wishes` say.

    Hello of an agent or client      consider(hello, now)     why it is refused, or None
    an agent is there, heard, gone   agent_joined, agents_heard, agent_left
    the partner has said something   hear_partner(report, now), lose_partner(now)
    somebody wants it                promote(now), hand_over(now)
    time goes by                     tick(now)

Who leads may be in doubt for a while; who hands out may not. That rests on two rules. *Agents hear one scheduler at a
time, and none of a lower term than one that they have heard.* *Who leads hands out only while it hears more than half
of each roster that its partner may have.* A roster is the list of the agents that count. It changes when the partner
has the new one: until then more than half of the old and of the new one are needed. Two parts of a roster that are each
more than half of it share an agent, so at most one of the pair hands out, but for the seconds until a lost agent is
missed.

A scheduler that was killed and starts again at its address knows nothing of a pair. Agents tell it: who says in its
Hello that there was one is not taken before the partner has agreed, or more than half of as many agents have come.
"""

from typing import NamedTuple

from scaler.common.effects import Log
from scaler.protocol.codes import Role
from scaler.protocol.hello import LOT, epoch_of, term_of
from scaler.protocol.messages import Hello, PartnerReport, u64
from scaler.scheduler.pair_journal import PairJournal
from scaler.scheduler.roster import Roster
from scaler.scheduler.succession_wishes import Announce, Answer, HandOut, KeepJobs, StepDown, Tell, Wish
from scaler.scheduler.votes import Votes

#: seconds between two reports
BEAT = 0.5
#: seconds of silence after which the partner may be gone, and of a closed connection
SUSPECT, CLOSED = 2.5, 0.5
#: seconds after which a pair counts no more that somebody has told of, if nobody comes from it any more
HEARSAY = 10.0
#: seconds that the partner is given to lead once it was asked to
YIELD = 3.0
#: terms that anybody may tell of are below this; as many again are left for those that come after
MAX_TERM = 1 << (63 - LOT)


class _Yielding(NamedTuple):
    """Somebody wants the partner to lead."""

    monitor: int
    number: int
    deadline: float
    #: the partner is not asked to before it has the rest of the journal
    awaits_rest: bool


class Succession:
    """One of a pair, or one that may become that. It outlives what is made anew when it steps down."""

    def __init__(self, address: str, lot: int, partner: str = "", stands_by: bool = False) -> None:
        """`address` is its own, as peers know it, and `partner` the other's, empty if there may be none.

        `lot` keeps its epochs apart from those of others.
        """
        self.address = address
        #: another one after each step-down: what is made anew then has heard of nobody yet
        self._lot = lot
        #: clients and agents belong here
        self.leads = not stands_by
        #: the highest that it has heard of
        self.term = 0
        #: where the other one is looked for, and where it was said that it is
        self.partner = self._named = partner
        #: what that said last, and when; it counts from now on
        self._report: PartnerReport | None = None
        self._heard = float("-inf")
        #: there are two: rosters count
        self.is_paired = False
        self._roster = Roster()
        #: the partner's epoch whose roster this is, of one that stands by
        self._followed = 0
        self._votes = Votes()
        self.hands_out = not stands_by
        #: why it does not, in words
        self.trouble = "it stands by" if stands_by else ""
        self._yielding: _Yielding | None = None
        #: it was elected by agents of a pair that it knows nothing of: more than half of so many have to be heard
        #: before rows are handed out; 0: the roster says who
        self._electors = 0
        #: it came to lead with a copy of the journal that has all that counts, if more than half of the agents are
        #: heard until then: the one that led may count without this one later; infinite: no matter
        self.sure_until = float("inf")
        #: so many agents of a pair may have gone to the partner that it may lead
        self._agents_are_quiet = False
        #: more than half of the agents are to confirm that they still listen
        self.asks_agents = False
        self.journal = PairJournal()
        #: it led alone and was told of a pair that it knows nothing of: when that was said last; None: it was not
        self._told_of_pair: float | None = None
        #: who has told of a pair, or of agents that count, before rows were handed out since; empty: nobody
        self._teller = ""
        #: it does not lead, and nobody else is known to: since when peers are sent away, infinite once the log has it;
        #: None: they are not
        self._refuses_since: float | None = None
        #: it has stepped down, and those who hear of that are about to be made anew: nobody comes before
        self._is_ending = False
        self._next_beat = float("-inf")
        self._next_look = float("-inf")
        #: when it was last told the time; and until when it hears what was said while its process was stopped
        self._told_time = float("inf")
        self._hears_old_until = float("-inf")
        self.wishes: list[Wish] = []

    # ---- what it is ------------------------------------------------------------------------------------------------
    @property
    def epoch(self) -> int:
        """What peers are welcomed with."""
        return epoch_of(self.term, self._lot)

    @property
    def is_alone(self) -> bool:
        """The partner has said goodbye, somebody has said that it is gone, or it was never heard."""
        return not self.is_paired and self._report is None

    @property
    def roster(self) -> int:
        """How many agents count, as far as both know."""
        return len(self._roster.settled) if self.is_paired else 0

    def hands_out_at(self, now: float) -> bool:
        """Rows may be handed out, as was seen a moment ago: not before a process that was stopped has looked again."""
        return self.hands_out and not self.was_stopped(now)

    @property
    def has_agents(self) -> bool:
        """Some have come here."""
        return self._roster.has_agents

    def leads_for_sure(self, now: float) -> bool:
        """It hands out, and the other one does not lead: that was heard a moment ago, or it has no agents for that."""
        may_have_agents = self._lacks_roster or (self.is_paired and self._agents_are_quiet)
        return self.hands_out_at(now) and not (may_have_agents and now - self._heard > 2 * BEAT)

    @property
    def _lacks_roster(self) -> bool:
        """The partner was heard, and has not said yet which agents count: they may be there, and it may lead."""
        return not self.is_paired and self._report is not None

    @property
    def counts_agents(self) -> bool:
        """It matters which agents are heard."""
        return self.is_paired or bool(self._electors)

    def was_stopped(self, now: float) -> bool:
        """This process has not run for a while, and `tick` has not been told yet: what has come may be of long ago."""
        return self.counts_agents and now - self._told_time > 2 * BEAT

    def _hears_old(self, now: float) -> bool:
        """What comes may have been said while this process was stopped."""
        return now < self._hears_old_until or self.was_stopped(now)

    def seeks(self, now: float) -> str:
        """Where the partner is to be connected to; empty if it was heard, or there is none."""
        return self.partner if now - self._heard > 2 * BEAT else ""

    def hears_partner(self, now: float) -> bool:
        """The partner was heard a moment ago, whatever it is."""
        return now - self._heard <= SUSPECT

    def follows(self, now: float) -> bool:
        """It stands by for a partner that was heard a moment ago: all is well."""
        return not self.leads and self.hears_partner(now)

    def silence(self, now: float, began: float) -> float:
        """Seconds for which the partner was not heard, or since this one `began`; 0 if that was a moment ago."""
        return 0.0 if self.hears_partner(now) else now - max(self._heard, began)

    def has_standby(self, now: float) -> bool:
        """The partner was heard a moment ago, and stands by."""
        report = self._report
        return self.leads and report is not None and not report.leading and self.hears_partner(now)

    @property
    def wake(self) -> float | None:
        """When `tick` is to be called next; None if nothing depends on the time."""
        if not (self.partner or self.counts_agents or not self.leads):
            return None
        return min(self._next_beat, self._next_look)

    def take(self) -> list[Wish]:
        """What is to be done, in order."""
        wishes, self.wishes, self._is_ending = self.wishes, [], False
        return wishes

    # ---- who comes -------------------------------------------------------------------------------------------------
    def consider(self, hello: Hello, now: float) -> str | None:
        """Why somebody who says this is to look elsewhere; None if it is welcome."""
        if hello.role == Role.SCHEDULER:
            return self._why_no_partner(hello.name, now)
        if hello.role == Role.MONITOR and (self.leads or not hello.others):
            return None
        term = term_of(hello.epoch)
        if not self._can_be(term):
            return "no scheduler has had this epoch"
        if self.leads and hello.role != Role.AGENT and self._has_left_a_pair(hello):  # all others need not suffer
            advice = f"unless an agent says so too (if all that is gone: scaler promote {self.address})"
            return f"it leads alone, and takes in nobody who comes from a pair of schedulers, {advice}"
        if self.leads and self._may_admit(hello, term, now):
            return None
        if hello.role == Role.AGENT and hello.roster and self._told_of_pair is not None:
            self._told_of_pair = now
        if hello.role == Role.AGENT and not self._hears_old(now):
            self._votes.add(hello.session, term, hello.roster, now)
        has_succeeded = self._succeed(now, is_wanted=hello.role in (Role.AGENT, Role.CLIENT))
        if has_succeeded:
            return None
        self._note_refused(now)
        return self._elsewhere(now, knows_others=bool(hello.others))

    def _why_no_partner(self, address: str, now: float) -> str | None:
        """Why a scheduler at this address can't be the other one; None if it can."""
        if address == self.address:
            return f"{address} is this scheduler itself: --standby-of names the other one of a pair"
        there = self._report
        if there is not None and there.address != address and self.hears_partner(now):
            pair = f"the one at {self.address} is one of a pair with the one at {self.partner}"
            return f"{pair}, and there is no third: end that one before another one takes its place"
        return None

    def _note_refused(self, now: float) -> None:
        """Somebody is sent away; if nobody leads for long the log says once who is waited for, and what to do."""
        if self._follows_leader(now):
            self._refuses_since = None
        elif self._refuses_since is None:
            self._refuses_since = now
        elif now - self._refuses_since >= HEARSAY:
            self._refuses_since = float("inf")
            self.wishes.append(
                Log(
                    "WARNING",
                    f"Scheduler: has led nobody for {HEARSAY:g} s, though it is looked for: {self._whom_it_awaits()}"
                    f"{self._who_told()} (if all that is gone: scaler promote {self.address})",
                )
            )

    def _whom_it_awaits(self) -> str:
        told, counts = self._votes.claim, len(self._roster.settled)
        if counts and told.term <= self.term:
            there = len(self._roster.settled & self._votes.sessions)
        else:
            there, counts = told.there, told.roster
        partner = f"it waits for the one at {self.partner}" if self.partner else "it waits for its partner"
        return f"{partner}, or for more than half of {counts} agents, of whom {there} want it" if counts else partner

    def _who_told(self) -> str:
        return f", as {self._teller} has said" if self._teller else ""

    def _follows_leader(self, now: float) -> bool:
        return self._report is not None and self._report.leading and self.hears_partner(now)

    def _can_be(self, term: int) -> bool:
        """Somebody may tell of this term: one that this one has come to by itself may be higher than others are."""
        return term < MAX_TERM or term <= self.term

    def _has_left_a_pair(self, hello: Hello) -> bool:
        """It comes from a pair that this one is not part of, and that may have more of a right, as it says."""
        term = term_of(hello.epoch)
        return bool(hello.roster) and not self.is_paired and term >= self.term and hello.epoch != self.epoch

    def _may_admit(self, hello: Hello, term: int, now: float) -> bool:
        """Take somebody in who comes from another scheduler, unless that one, or a pair, has more of a right."""
        if self.is_paired and term > self.term:
            self.term = term
            self._step_down(f"{hello.role} {hello.name} has heard a scheduler of a higher term")
            return False
        if self._has_left_a_pair(hello):
            knows_partner = bool(self._named) or self._report is not None
            self._step_down(f"{hello.role} {hello.name} comes from a pair of schedulers")
            self._teller = f"{hello.role} {hello.name}"
            self._told_of_pair = None if knows_partner else now
            return False
        if term > self.term:
            self.term = term
            self._announce()
        return True

    def _elsewhere(self, now: float, knows_others: bool = False) -> str:
        if self._follows_leader(now):
            advice = "" if knows_others else ": give the addresses of both"
            return f"it stands by for the one at {self.partner}{advice}"
        if self.partner:
            return f"it stands by for the one at {self.partner}, and does not lead yet"
        return "it was one of a pair, and waits for its partner or for more than half of the agents"

    # ---- agents ----------------------------------------------------------------------------------------------------
    def agent_joined(self, session: int) -> None:
        """An agent was welcomed; whether it has heard that is known when it says something."""
        self._roster.join(session)

    def agents_heard(self, sessions: list[int], now: float) -> None:
        """These have said something."""
        self._roster.hear(sessions, now)
        if not self.hands_out:
            self._next_look = now

    def agent_left(self, session: int) -> None:
        """It is gone."""
        self._roster.leave(session)

    def agents_confirmed(self, sessions: list[int]) -> None:
        """These have heard something that was said since they were asked to confirm that they still listen."""
        self._roster.confirm_heard(sessions)

    def may_be_alone(self, now: float, asks: bool) -> bool:
        """What this one alone has may count: more than half of the agents are heard.

        If it `asks`, more than half have to have heard something that was said since it first did: so none of those had
        come to the partner by then.
        """
        asks = asks and self.is_paired
        if asks and not self.asks_agents:
            self._roster.ask_again()
        self.asks_agents = asks
        return self.hands_out_at(now) and not self._lacks_roster and (not asks or self._roster.has_confirmation())

    # ---- the partner -----------------------------------------------------------------------------------------------
    def hear_partner(self, report: PartnerReport, now: float) -> None:
        """The other one says how it sees things."""
        term = term_of(report.epoch)
        if not self._can_be(term) or report.address == self.address:
            return
        self._told_of_pair = None
        was = self._report
        if was is not None and term < term_of(was.epoch) and now - self._heard < 2 * BEAT:
            return  # it was overtaken: there may be two connections
        self._report, self._heard = report, now
        if self.leads or not self.partner:
            self.partner = report.address
        if self.leads and report.leading:
            self._settle_which_leads(report)
        elif self.leads:
            self._hear_standby(report, now)
        elif report.leading:
            self._follow(report, now)
        else:
            self.term = max(self.term, term)
            self._succeed(now, is_wanted=False)
        if was is None or was.leading != report.leading:
            self._next_beat = now

    def _settle_which_leads(self, report: PartnerReport) -> None:
        """Both lead: the one of the higher term stays."""
        if report.epoch > self.epoch:
            self.term = max(self.term, term_of(report.epoch))
            self._step_down(f"the scheduler at {report.address} leads")

    def _hear_standby(self, report: PartnerReport, now: float) -> None:
        # it follows another one of this term, maybe this one before it was started again, or has heard of a later term:
        # it listens to none but of a term after that
        is_behind = report.epoch != self.epoch and report.epoch > self.term << LOT
        was_paired = self.is_paired
        if not was_paired:
            # it follows this one, which has told it that nobody counts so far: it has nothing else to tell
            has_ours = report.epoch == self.epoch and report.version == self._roster.version
            if report.version and not report.changed and not has_ours:
                self._next_beat = float("-inf")  # it answers with its roster
                return
            self.is_paired, self._told_time = True, now
            self._roster.inherit(report.roster, report.version, now)
            if report.version and not has_ours:  # it has stood by for one that this one knows nothing of
                self._electors, self._teller = 0, f"the one at {report.address}"
                is_behind = True
            self.wishes.append(Log("INFO", f"Scheduler: the one at {report.address} stands by"))
        if is_behind:
            self.term = max(self.term, term_of(report.epoch)) + 1
        if is_behind or not was_paired:
            self._announce()
        if report.epoch == self.epoch and now <= self.sure_until:
            self.sure_until = float("inf")  # it follows, so it counts nothing by itself
        if report.epoch == self.epoch and self._roster.confirm(report.version):
            self._announce()
        self._next_look = float("-inf")

    def _follow(self, report: PartnerReport, now: float) -> None:
        """Take over what the one that leads says of the agents that count."""
        self._refuses_since = None
        newer = term_of(report.epoch) > term_of(self._followed) or not self._followed
        if newer or report.epoch == self._followed:
            if self._followed != report.epoch or not self.is_paired:
                self._next_beat = now
                self.wishes.append(Log("INFO", f"Scheduler: stands by for the one at {self.partner}"))
            self.is_paired = True
            self._followed, self.term = report.epoch, max(self.term, term_of(report.epoch))
            if report.changed:
                self._roster.follow(report.roster, report.version)
                self._next_beat = now
            if report.yields and not self._is_ending:
                self._lead(now, "it was asked to", is_planned=True)

    def lose_partner(self, now: float, said_goodbye: bool) -> None:
        """Its connection closed; or it said that it does not stand by any more.

        A goodbye that was said while this one was stopped is none: the other one may have led since.
        """
        said_goodbye = said_goodbye and not self._hears_old(now)
        self._heard = min(self._heard, now - SUSPECT + CLOSED)
        self._next_look = min(self._next_look, now + CLOSED)
        if said_goodbye and self.leads and self._report is not None and not self._report.leading:
            self._report, self.partner, self.is_paired, self._electors = None, self._named, False, 0
            self._roster.dissolve()
            self.wishes.append(Log("INFO", "Scheduler: nobody stands by any more"))
            self._announce()
            self._let_hand_out(True)

    # ---- what people want ------------------------------------------------------------------------------------------
    def promote(self, now: float) -> str:
        """Lead, whoever else may: the agents that come count from now on. Why it does not, or nothing."""
        if self._is_ending:
            return "this scheduler has just come to stand by: say it again"
        is_first = self.leads and self.hands_out and not self._lacks_roster
        if is_first and not self.journal.is_held:
            return "this scheduler leads already"
        if self.leads and (self.journal.is_held or self._yielding is not None):
            self.wishes.append(KeepJobs(True))
        if self._yielding is not None:
            self._answer("it leads on: somebody has promoted it meanwhile")
        if is_first:
            return ""
        self._roster.dissolve()
        self.is_paired, self._report, self._electors = False, None, 0
        if self.leads:
            self.term += 1
            self._announce()
            self._let_hand_out(True)
        else:
            self._lead(now, "somebody wants it", asks=False)
        return ""

    def hand_over(self, monitor: int, number: int, now: float, is_forced: bool = False) -> str:
        """Have the partner lead: `Answer` tells when it does. Why it can't, or nothing.

        `is_forced`: whatever its copy of the journal lacks.
        """
        report = self._report
        if not self.leads:
            return f"this scheduler {self._elsewhere(now).removeprefix('it ')}"
        if report is None or report.leading or not self.is_paired or not self.hears_partner(now):
            return "no other scheduler stands by for this one (scaler_scheduler --standby-of)"
        if self._yielding is not None:
            return "somebody else hands it over at this moment"
        trouble = self.journal.why_not_handed_over(is_forced)
        if trouble:
            return trouble
        awaits_rest = self.journal.is_copied and not is_forced
        self._yielding = _Yielding(monitor, number, now + YIELD, awaits_rest)
        self.wishes.append(Log("INFO", f"Scheduler: hands over to the one at {self.partner}"))
        self._let_hand_out(False, "it hands over to its partner")
        self.wishes.append(KeepJobs(False))
        self._beat(now)
        return ""

    def rest_is_there(self, now: float) -> None:
        """The partner has all of the journal, and may lead."""
        if self._yielding is not None and self._yielding.awaits_rest:
            self._yielding = self._yielding._replace(awaits_rest=False)
            self._beat(now)

    # ---- time ------------------------------------------------------------------------------------------------------
    def rests(self, now: float) -> bool:
        """Nothing is to be done, and `tick` would do nothing: there is no other one. Then it notes the time as `tick`
        does; it costs a tenth of that, which whoever submits one task after the other waits for."""
        if self.wishes or self.partner or self._report is not None or self.asks_agents:
            return False
        if not (self.leads and self.hands_out) or self.counts_agents or self._agents_are_quiet:
            return False
        self._told_time = now
        return True

    def tick(self, now: float) -> None:
        """Time has passed."""
        if self.was_stopped(now):
            self._hears_old_until = now + SUSPECT
        self._told_time = now
        if self._yielding is not None and now > self._yielding.deadline:
            self._answer("the other scheduler did not answer: whichever hears the other first leads")
            self._step_down("its partner was to lead, and did not say that it does")
        if self.leads and not self.hands_out and now > self.sure_until:
            self._step_down("too few agents have come in time, and its partner may have gone on without it")
        if now >= self._next_look:
            self._next_look = now + BEAT / 2
            if self.leads:
                self._look(now)
            else:
                self._succeed(now, is_wanted=False)
        if now >= self._next_beat:
            self._beat(now)

    def _look(self, now: float) -> None:
        """Whether enough agents are here; and who is to count from now on."""
        self._agents_are_quiet = self.is_paired and self._roster.is_quiet(now)
        if not self.counts_agents or self._yielding is not None:
            return
        if self._electors and 2 * (heard := self._roster.count_heard(now)) <= self._electors:
            self._let_hand_out(False, f"{heard} of the {self._electors} agents that count are heard")
            return
        self._electors = 0
        if not self.is_paired:
            self._let_hand_out(True)
            return
        is_offered, least = self._roster.look(now, may_offer=self.hears_partner(now))
        if is_offered:
            self._next_beat = now
        self._let_hand_out(not least, least and least + self._who_told())

    def _beat(self, now: float) -> None:
        self._next_beat = now + BEAT
        if not self.partner and self._report is None:
            return
        report, version = self._report, self._roster.version
        followed = self.epoch if self.leads else self._followed
        has_other = report is None or report.version != version or report.epoch != followed
        is_said = has_other and bool(version)
        self.wishes.append(
            Tell(
                PartnerReport(
                    self.epoch if self.leads else max(self._followed, self.term << LOT),
                    self.leads,
                    self.address,
                    version,
                    is_said,
                    u64(sorted(self._roster.latest) if is_said else ()),
                    self.leads and self._yielding is not None and not self._yielding.awaits_rest,
                )
            )
        )

    # ---- who leads -------------------------------------------------------------------------------------------------
    def _succeed(self, now: float, is_wanted: bool) -> bool:
        """Lead, if the partner does not and would not; `is_wanted`: somebody looks for a scheduler here.

        Whether it leads now.
        """
        why, electors = ("", 0) if self._is_ending else self._why_to_lead(now, is_wanted)
        if why:
            self._lead(now, why, electors=electors)
        return bool(why)

    def _why_to_lead(self, now: float, is_wanted: bool) -> tuple[str, int]:
        """Why it is to lead, or nothing; and of how many agents more than half have to be heard, if not of a roster."""
        self._votes.drop_old(now)
        report = self._report
        if self.hears_partner(now):
            if report is not None and not report.leading and self._comes_before(report):
                return "its partner waits, too", 0
            return "", 0
        top, counts = self._votes.highest_term, len(self._roster.settled)
        if counts and top <= self.term:
            if self._roster.has_majority(self._votes.sessions):
                return f"more than half of {counts} agents want it", 0
        elif top >= 0:
            electors = self._votes.electors()
            if electors:
                self.term = max(self.term, top)  # of a lower one none of them would hear, and the next would end it
                return f"more than half of {electors} agents want it", electors
        elif self._told_of_pair is not None and now - self._told_of_pair >= HEARSAY and self._votes.sessions:
            return "nobody comes any more from the pair that it was told of", 0
        elif self._roster.version and not counts and is_wanted:
            return "its partner is gone, and had no agents", 0
        return "", 0

    def _comes_before(self, report: PartnerReport) -> bool:
        mine, other = (self.term, self._roster.version), (term_of(report.epoch), report.version)
        return mine > other or (mine == other and self.address < report.address)

    def _lead(self, now: float, why: str, asks: bool = True, electors: int = 0, is_planned: bool = False) -> None:
        self.leads, self.term, self._electors, self._told_time = True, self.term + 1, electors, now
        self._told_of_pair, self._refuses_since = None, None
        self._votes.clear()
        self._roster.lead(now)
        level = "INFO" if is_planned else "WARNING"
        self.wishes.append(Log(level, f"Scheduler: leads from now on, in term {self.term}: {why}"))
        self._announce()
        self.wishes.append(KeepJobs(True, asks))
        counts = len(self._roster.settled)
        awaited = electors or counts
        self._let_hand_out(not awaited, f"none of {awaited} agents that count has come yet" if awaited else "")
        self._next_beat = now

    def _step_down(self, reason: str) -> None:
        self.leads, self._is_ending, self._electors, self._told_of_pair = False, True, 0, None
        self._lot += 2  # the lowest bit is always set
        self.sure_until, self.asks_agents = float("inf"), False
        self._followed, self._report, self._teller = 0, None, ""
        self._roster.step_down()
        self.journal.forget_partner()
        if self.hands_out:  # what came with that is dealt with by who is about to go
            self.wishes.append(HandOut(False, "it stands by"))
        self.hands_out, self.trouble = False, "it stands by"
        self._next_beat = float("-inf")
        level = "WARNING" if self._yielding is None else "INFO"
        if self._yielding is not None:
            self._answer("")
        self.wishes.append(Log(level, f"Scheduler: stands by from now on: {reason}"))
        self.wishes.append(StepDown(reason))

    def _answer(self, error: str) -> None:
        assert self._yielding is not None
        self.wishes.append(Answer(self._yielding.monitor, self._yielding.number, error))
        self._yielding = None

    def _announce(self) -> None:
        self.wishes.append(Announce(self.roster))

    def _let_hand_out(self, may: bool, reason: str = "") -> None:
        if may == self.hands_out:
            if reason != self.trouble:
                self.trouble = reason
                self.wishes.append(HandOut(may, reason))
            return
        self.hands_out, self.trouble = may, reason
        self.wishes.append(HandOut(may, reason))
        if may:
            self._teller, self.sure_until = "", float("inf")
            self.wishes.append(Log("INFO", "Scheduler: hands out rows"))
        elif self._yielding is None:  # as planned otherwise, which the log has
            self.wishes.append(
                Log("WARNING", f"Scheduler: hands out nothing for now: {reason} (scaler promote {self.address})")
            )
