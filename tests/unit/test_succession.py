"""Which of two schedulers leads: the pure core, one at a time and both against each other."""

from __future__ import annotations

import copy
import random
from collections import Counter
from itertools import count

import pytest

from scaler.common.effects import Log
from scaler.protocol.acceptor import LEFT, Acceptor, Joined, Lost, Terms
from scaler.protocol.channel import Envelope
from scaler.protocol.codes import Role
from scaler.protocol.hello import epoch_of, hello_of, term_of
from scaler.protocol.initiator import Established, Initiator, Rejected
from scaler.protocol.messages import (
    PROTOCOL_VERSION,
    Heartbeat,
    HeartbeatEcho,
    Hello,
    JournalStart,
    JournalState,
    JournalSynced,
    Malformed,
    PartnerReport,
    Refused,
    Welcome,
    u64,
)
from scaler.protocol.messages.succession import MAX_VERSION
from scaler.scheduler.pairing import Pairing
from scaler.scheduler.roster import ABSENT, LEASE, QUIET
from scaler.scheduler.succession import (
    BEAT,
    CLOSED,
    HEARSAY,
    MAX_TERM,
    SUSPECT,
    YIELD,
    Announce,
    Answer,
    HandOut,
    KeepJobs,
    StepDown,
    Succession,
    Tell,
)

A, B = "tcp://a:1", "tcp://b:1"


def hello(role: str = Role.AGENT, session: int = 1, epoch: int = 0, roster: int = 0, others: int = 1) -> Hello:
    said = hello_of(role, f"{role}-{session}", session)
    said.epoch, said.roster, said.others = epoch, roster, others
    return said


class Pair:
    """Two successions and the connection between them, by hand."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.a = Succession(A, 111)
        self.b = Succession(B, 222, A, stands_by=True)
        self.is_cut = False
        #: what each wanted since it was looked at
        self.wanted: dict[str, list[object]] = {A: [], B: []}

    def step(self, seconds: float = BEAT / 2) -> None:
        """Time goes by, and what they tell each other arrives."""
        until = self.now + seconds
        while self.now < until:
            self.now += BEAT / 4
            for one, other in ((self.a, self.b), (self.b, self.a)):
                one.tick(self.now)
                for wish in one.take():
                    if isinstance(wish, Tell) and not self.is_cut:
                        other.hear_partner(wish.report, self.now)
                    elif not isinstance(wish, Tell):
                        self.wanted[one.address].append(wish)

    def agents(self, sessions: range, at: Succession, seconds: float = 2.0) -> None:
        """These are at one of them, and are heard."""
        for session in sessions:
            at.agent_joined(session)
        until = self.now + seconds
        while self.now < until:
            at.agents_heard(list(sessions), self.now)
            self.step()

    def come(self, sessions: range, to: Succession, told: int, term: int = 0) -> list[str | None]:
        """These say Hello, as agents do that have lost their scheduler."""
        return [to.consider(hello(session=s, epoch=epoch_of(term, 5), roster=told), self.now) for s in sessions]


@pytest.fixture
def pair() -> Pair:
    made = Pair()
    made.step(2.0)
    return made


def test_one_alone_leads_and_costs_nothing() -> None:
    alone = Succession(A, 1)
    assert alone.leads
    assert alone.hands_out
    assert alone.wake is None
    assert alone.consider(hello(), 0.0) is None
    alone.agent_joined(1)
    alone.tick(1.0)
    assert alone.take() == []
    assert alone.roster == 0


def test_the_roster_is_what_the_standby_has(pair: Pair) -> None:
    assert pair.a.is_paired
    assert pair.a.roster == 0
    pair.agents(range(1, 6), pair.a)
    assert pair.a.roster == 5
    assert pair.b.roster == 5
    pair.is_cut = True
    pair.agents(range(1, 8), pair.a)
    assert pair.a.roster == 5, "the standby has not said that it has the new one"
    assert pair.a.hands_out


def test_a_standby_sends_everybody_to_the_one_that_leads(pair: Pair) -> None:
    for role in (Role.CLIENT, Role.AGENT, Role.STORE, Role.MONITOR):
        reason = pair.b.consider(hello(role), pair.now)
        assert reason is not None
        assert A in reason
    assert pair.b.consider(hello(Role.MONITOR, others=0), pair.now) is None, "a person looks at the standby itself"


def scheduler_at(address: str) -> Hello:
    return hello_of(Role.SCHEDULER, address, 9)


def test_a_pair_has_no_third(pair: Pair) -> None:
    """Else each takes the other's place in turn, and the one that leads counts on rosters that one of them has."""
    third = "tcp://c:1"
    for one, other in ((pair.a, B), (pair.b, A)):
        reason = one.consider(scheduler_at(third), pair.now)
        assert reason == (
            f"the one at {one.address} is one of a pair with the one at {other}, and there is no third: "
            "end that one before another one takes its place"
        )
        assert one.consider(scheduler_at(other), pair.now) is None, "it connects anew"
    pair.a.lose_partner(pair.now, said_goodbye=False)
    assert pair.a.consider(scheduler_at(third), pair.now + CLOSED + 0.1) is None, "the other one is gone"


def test_a_standby_says_where_the_other_one_is_by_the_address_that_it_was_given() -> None:
    """One that listens everywhere, and knows of no standby yet, knows itself by its loopback address."""
    stands_by = Succession(B, 222, A, stands_by=True)
    stands_by.hear_partner(PartnerReport(epoch_of(1, 5), True, "tcp://127.0.0.1:1", 0, False, u64()), 0.0)
    (said,) = (wish.text for wish in stands_by.take() if isinstance(wish, Log))
    assert said == f"Scheduler: stands by for the one at {A}"


def test_a_scheduler_is_not_its_own_standby() -> None:
    """It was given its own address by another name, as where both hosts have one command line."""
    alone = Succession(A, 1, "tcp://also-a:1", stands_by=True)
    reason = alone.consider(scheduler_at(A), 0.0)
    assert reason == f"{A} is this scheduler itself: --standby-of names the other one of a pair"


def test_a_standby_leads_when_more_than_half_of_the_agents_come(pair: Pair) -> None:
    pair.agents(range(1, 6), pair.a)
    pair.is_cut = True
    pair.step(SUSPECT + BEAT)
    pair.wanted[B].clear()
    assert all(pair.come(range(1, 3), pair.b, told=5)), "two of five"
    assert not pair.b.leads
    assert pair.come(range(3, 4), pair.b, told=5) == [None]
    assert pair.b.leads
    assert not pair.b.hands_out, "they have said that they want to come, and are not here yet"
    pair.agents(range(1, 4), pair.b)
    wanted = pair.wanted[B]
    assert pair.b.hands_out
    assert KeepJobs(True, asks=True) in wanted
    assert [(wish.may, wish.reason) for wish in wanted if isinstance(wish, HandOut)] == [
        (False, "none of 5 agents that count has come yet"),
        (True, ""),
    ]
    assert term_of(pair.b.epoch) == 1


def test_what_agents_wanted_while_a_standby_was_stopped_does_not_count(pair: Pair) -> None:
    """It was in the sockets; they have been back at the other one for long, maybe."""
    pair.agents(range(1, 6), pair.a)
    pair.is_cut = True
    pair.now += 20.0
    assert all(pair.come(range(1, 6), pair.b, told=5))
    pair.step(SUSPECT - 1.0)
    assert all(pair.come(range(1, 6), pair.b, told=5))
    pair.step(1.5)
    assert pair.come(range(1, 4), pair.b, told=5)[-1] is None


def test_votes_of_one_agent_count_once_and_those_of_strangers_not(pair: Pair) -> None:
    pair.agents(range(1, 6), pair.a)
    pair.is_cut = True
    pair.step(SUSPECT + BEAT)
    assert all(pair.come(range(1, 2), pair.b, told=5) * 9)
    assert all(pair.come(range(50, 60), pair.b, told=5))
    assert not pair.b.leads


def test_a_standby_that_hears_the_leader_does_not_lead_whoever_comes(pair: Pair) -> None:
    pair.agents(range(1, 6), pair.a)
    assert all(pair.come(range(1, 6), pair.b, told=5))
    assert not pair.b.leads


def test_who_leads_hands_out_only_while_it_hears_more_than_half(pair: Pair) -> None:
    pair.agents(range(1, 6), pair.a)
    pair.is_cut = True
    pair.wanted[A].clear()
    pair.agents(range(1, 3), pair.a, LEASE + 1)
    (stopped,) = (wish for wish in pair.wanted[A] if isinstance(wish, HandOut))
    assert stopped == HandOut(False, "2 of the 5 agents that count are heard")
    pair.agents(range(1, 4), pair.a, 1.0)
    assert pair.a.hands_out


def test_who_leads_is_not_sure_of_it_as_soon_as_the_other_one_may(pair: Pair) -> None:
    """Rows are handed out for a moment longer, as agents do not hear two; questions can wait for that moment."""
    pairing = Pairing(pair.a, Acceptor(Terms(epoch_of(0, 7), 1, True, 1.0, 10.0, 10.0, 1 << 30), 100))
    pair.agents(range(1, 6), pair.a)
    pair.agents(range(1, 3), pair.a, QUIET + 1)
    assert pairing.doubt(pair.now) == "", "the other one stands by, as it says"
    pair.agents(range(1, 6), pair.a)
    pair.is_cut = True
    pair.agents(range(1, 4), pair.a, SUSPECT + 1)
    assert pairing.doubt(pair.now) == "", "three of five are heard"
    pair.agents(range(1, 3), pair.a, QUIET + BEAT)
    assert pair.a.hands_out
    assert pairing.doubt(pair.now) == f"too few agents are heard (scaler promote {A})"
    pair.agents(range(1, 4), pair.a, 1.0)
    assert pairing.doubt(pair.now) == ""


def test_without_the_standby_lost_agents_count_on(pair: Pair) -> None:
    pair.agents(range(1, 6), pair.a)
    pair.is_cut = True
    for session in (4, 5):
        pair.a.agent_left(session)
    pair.agents(range(1, 4), pair.a, 5.0)
    assert pair.a.roster == 5
    pair.is_cut = False
    pair.agents(range(1, 4), pair.a, 2.0)
    assert pair.a.roster == pair.b.roster == 3


def test_two_that_lead_agree_when_they_hear_each_other(pair: Pair) -> None:
    pair.agents(range(1, 6), pair.a)
    pair.is_cut = True
    pair.step(SUSPECT + BEAT)
    pair.come(range(1, 4), pair.b, told=5)
    assert pair.a.leads
    assert pair.b.leads
    pair.is_cut = False
    pair.step(2.0)
    assert pair.b.leads
    assert not pair.a.leads
    assert any(isinstance(wish, StepDown) for wish in pair.wanted[A])
    assert pair.b.is_paired


def test_an_agent_of_a_higher_term_ends_a_leader_that_has_not_noticed(pair: Pair) -> None:
    pair.agents(range(1, 4), pair.a)
    pair.is_cut = True
    assert pair.a.consider(hello(session=9, epoch=epoch_of(1, 3), roster=3), pair.now) is not None
    assert not pair.a.leads


def test_one_that_was_stopped_looks_again_before_it_counts_on_its_agents(pair: Pair) -> None:
    """Another one may lead by now: what it acknowledged with its journal alone would be lost."""
    pair.agents(range(1, 4), pair.a)
    assert pair.a.hands_out_at(pair.now)
    later = pair.now + 20.0
    assert (pair.a.hands_out, pair.a.hands_out_at(later)) == (True, False)
    pair.a.tick(later)
    assert not pair.a.hands_out_at(later)
    pair.a.agents_heard([1, 2], later)
    pair.a.tick(later + BEAT)
    assert pair.a.hands_out_at(later + BEAT)


class Heard:
    """Three agents at the first of a pair, with what it has sent them and they confirm."""

    def __init__(self, pair: Pair) -> None:
        self.pair = pair
        self.acceptor = Acceptor(Terms(pair.a.epoch, PROTOCOL_VERSION, True, 1.0, 10.0, 10.0, 1 << 20))
        self.pairing = Pairing(pair.a, self.acceptor)
        self.said: Counter[int] = Counter()
        self.numbers: list[int] = []
        for agent in (1, 2, 3):
            (joined,) = self.acceptor.receive(agent, Envelope(0, 0, hello(session=agent)), 0)
            self.pairing.take(joined, pair.now)
            self.numbers.append(joined.number)
        for _ in range(9):
            assert self.go_on(0, 1, 2, 3)
        assert pair.a.roster == 3

    def send(self) -> None:
        """Something is said to each."""
        for number in self.numbers:
            self.acceptor.send(number, HeartbeatEcho(0.0, 1))

    def say(self, ack: int, *agents: int) -> None:
        """These say something, and have heard so many messages."""
        self.said.update(agents)
        for agent in agents:
            (event,) = self.acceptor.receive(agent, Envelope(self.said[agent], ack, Heartbeat(0.0)), 0)
            assert not self.pairing.take(event, self.pair.now)

    def go_on(self, ack: int, *agents: int) -> bool:
        """The same, and time goes by; whether rows are handed out then."""
        self.say(ack, *agents)
        self.pair.step(BEAT / 4)
        self.pairing.attend(self.pair.now)
        return self.pair.a.hands_out


def test_what_agents_have_said_while_this_one_was_stopped_does_not_count(pair: Pair) -> None:
    """They may have gone to the other one since: those are there that confirm what is said from now on."""
    agents = Heard(pair)
    agents.send()
    pair.now += 20.0
    agents.say(1, 1, 2, 3)  # it was in the sockets
    agents.pairing.attend(pair.now)
    assert not pair.a.hands_out
    agents.send()
    for _ in range(3):
        assert not agents.go_on(1, 1, 2, 3), "this came later, and is as old"
    for _ in range(3):
        assert not agents.go_on(2, 1), "one of three is there"
    for _ in range(3):
        is_back = agents.go_on(2, 1, 2)
    assert is_back


def test_one_goes_on_without_a_copy_when_more_than_half_have_heard_something_since(pair: Pair) -> None:
    """It counted on agents that were heard a moment ago, and may have made the other one lead just in time."""
    agents = Heard(pair)
    agents.send()
    assert pair.a.may_be_alone(pair.now, asks=False)
    assert not pair.a.may_be_alone(pair.now, asks=True)
    assert agents.go_on(1, 1, 2, 3), "rows are handed out meanwhile"
    assert not pair.a.may_be_alone(pair.now, asks=True), "they have heard what was said before"
    agents.send()
    agents.go_on(1, 1, 2, 3)
    agents.go_on(2, 1)
    assert not pair.a.may_be_alone(pair.now, asks=True)
    agents.go_on(2, 2)
    assert pair.a.may_be_alone(pair.now, asks=True)
    assert not pair.a.may_be_alone(pair.now + 10.0, asks=True), "it was stopped"
    assert pair.a.may_be_alone(pair.now, asks=False)
    agents.go_on(2, 1, 2, 3)
    assert not pair.a.may_be_alone(pair.now, asks=True), "that was another time"


def test_one_that_was_elected_in_step_and_is_not_heard_in_time_steps_down(pair: Pair) -> None:
    """From then on the one that led may go on alone, with agents that have come back to it: its copy is newer then."""
    pair.agents(range(1, 4), pair.a)
    pair.is_cut = True
    pair.step(SUSPECT + 1.0)
    assert pair.come(range(1, 4), pair.b, told=3)[-1] is None
    assert pair.b.leads
    pair.b.sure_until = pair.now + 4.0
    pair.agents(range(1, 2), pair.b, seconds=3.5)
    assert pair.b.leads
    pair.b.agents_heard([1, 2, 3], pair.now + 1.0)
    pair.b.tick(pair.now + 1.0)
    assert (pair.b.leads, pair.b.hands_out) == (False, False)


def test_one_that_was_elected_in_step_and_whose_partner_follows_in_time_goes_on(pair: Pair) -> None:
    """After a hand-over, say, when few agents are left: nobody else can have counted anything since."""
    pair.agents(range(1, 4), pair.a)
    assert pair.a.hand_over(1, 1, pair.now) == ""
    pair.step(0.25)
    assert pair.b.leads
    pair.b.sure_until = pair.now + 4.0
    pair.step(8.0)
    assert (pair.a.leads, pair.b.leads, pair.b.hands_out) == (False, True, False)


def test_one_that_was_elected_in_step_and_is_heard_in_time_goes_on(pair: Pair) -> None:
    pair.agents(range(1, 4), pair.a)
    pair.is_cut = True
    pair.step(SUSPECT + 1.0)
    pair.come(range(1, 4), pair.b, told=3)
    pair.b.sure_until = pair.now + 4.0
    pair.agents(range(1, 3), pair.b)
    assert pair.b.hands_out
    pair.agents(range(1, 2), pair.b, seconds=20.0)
    assert (pair.b.leads, pair.b.hands_out) == (True, False)


def test_one_of_a_pair_does_not_go_on_as_if_nobody_had_led_since(pair: Pair) -> None:
    """Whoever did may not have been heard by a partner, and has a newer journal all the same."""
    pair.agents(range(1, 4), pair.a)
    pair.is_cut = True
    assert all(pair.come(range(1, 4), pair.a, told=0, term=2))
    wanted = pair.a.take()
    assert wanted.index(HandOut(False, "it stands by")) < next(
        at for at, wish in enumerate(wanted) if isinstance(wish, StepDown)
    )
    pair.step(SUSPECT + 1.0)
    assert pair.come(range(1, 4), pair.a, told=0, term=2)[-1] is None
    assert (pair.a.leads, pair.a.term) == (True, 3)
    assert KeepJobs(True, asks=True) in pair.a.take()


def test_a_client_that_comes_from_a_pair_does_not_stop_one_that_leads_alone() -> None:
    """Anybody can say so, and the others need not suffer; of agents more than half would have to."""
    alone = Succession(A, 7)
    before = alone.term
    for epoch in (0, epoch_of(3, 5)):
        said = hello(Role.CLIENT, session=9, epoch=epoch, roster=3)
        assert "takes in nobody who comes from a pair of schedulers" in str(alone.consider(said, 1.0))
    assert (alone.leads, alone.term, alone.take()) == (True, before, [])
    assert alone.consider(hello(session=2), 1.0) is None
    assert alone.consider(hello(session=1, epoch=epoch_of(3, 5), roster=3), 1.0) is not None
    assert not alone.leads


def test_nobody_comes_to_one_that_steps_down_before_that_is_done() -> None:
    """What hears of an agent then is about to be made anew, and nobody would ever miss it."""
    again = Succession(A, 7)
    said = hello(session=1, epoch=epoch_of(3, 5), roster=1)
    assert again.consider(said, 1.0) is not None
    assert any(isinstance(wish, StepDown) for wish in again.wishes)
    assert again.consider(said, 1.0) is not None
    assert not again.leads
    again.take()
    assert again.consider(said, 1.1) is None
    assert again.leads


def test_one_that_was_elected_and_knows_no_roster_is_told_it(pair: Pair) -> None:
    pair.agents(range(1, 4), pair.a)
    assert pair.a.roster == pair.b.roster == 3
    pair.a = Succession(A, 333, B, stands_by=True)
    assert pair.come(range(1, 4), pair.a, told=3)[-1] is None
    pair.agents(range(1, 4), pair.a)
    assert (pair.a.leads, pair.a.is_paired, pair.a.roster) == (True, True, 3)


def test_a_report_that_was_overtaken_makes_nobody_lead(pair: Pair) -> None:
    pair.agents(range(1, 4), pair.a)
    pair.b.tick(pair.now + BEAT)
    late = next(wish.report for wish in pair.b.take() if isinstance(wish, Tell))
    assert pair.a.hand_over(1, 1, pair.now) == ""
    pair.step(1.0)
    assert (pair.a.leads, pair.b.leads) == (False, True)
    pair.a.hear_partner(late, pair.now)
    assert not pair.a.leads


def test_one_that_starts_again_asks_its_partner(pair: Pair) -> None:
    pair.agents(range(1, 6), pair.a)
    pair.a = Succession(A, 333)
    pair.step(2.0)
    assert pair.a.leads
    assert pair.a.is_paired
    assert term_of(pair.a.epoch) == 1
    assert pair.a.roster == 5
    assert not pair.a.hands_out, "who counts has not come yet"
    pair.agents(range(1, 4), pair.a)
    assert pair.a.hands_out
    assert not pair.b.leads


def test_one_that_starts_again_is_not_sure_of_anything_before_it_knows_who_counts(pair: Pair) -> None:
    """Its partner was heard, and then was cut off: the agents may have gone there, and it may lead by now."""
    pair.agents(range(1, 4), pair.a)
    again = Succession(A, 333)
    assert again.leads_for_sure(pair.now), "nobody was heard"
    again.hear_partner(PartnerReport(pair.a.epoch, False, B, pair.b._roster.version, False), pair.now)
    assert again.leads_for_sure(pair.now), "it has just been heard to stand by"
    assert not again.may_be_alone(pair.now, asks=True)
    pair.step(SUSPECT)
    again.tick(pair.now)
    assert not again.leads_for_sure(pair.now)
    assert not again.may_be_alone(pair.now, asks=True)
    assert again.promote(pair.now) == "", "somebody knows better"
    assert again.may_be_alone(pair.now, asks=True)
    assert again.leads_for_sure(pair.now)
    assert "leads already" in again.promote(pair.now)


def test_one_that_starts_again_before_any_agent_has_come_is_followed_anew(pair: Pair) -> None:
    """Nobody counts: its partner has no roster to tell, and has heard of no term but this one's."""
    assert (pair.b.is_paired, pair.b.roster) == (True, 0)
    pair.a = Succession(A, 333)
    pair.step(2.0)
    assert (pair.a.is_paired, term_of(pair.a.epoch)) == (True, 1)
    pair.agents(range(1, 4), pair.a)
    assert pair.a.hands_out
    assert pair.a.roster == pair.b.roster == 3
    term = pair.a.term
    pair.step(5.0)
    assert pair.a.term == term, "it is not raised again and again"


def test_one_that_starts_again_without_its_partner_waits_for_more_than_half(pair: Pair) -> None:
    pair.agents(range(1, 6), pair.a)
    pair.is_cut = True
    pair.a = Succession(A, 333)
    assert all(pair.come(range(1, 3), pair.a, told=5))
    assert not pair.a.leads
    pair.a.take()
    assert pair.come(range(3, 4), pair.a, told=5) == [None]
    assert pair.a.leads
    assert term_of(pair.a.epoch) == 1


def elected_anew() -> Succession:
    """One that has just begun to stand by, and is wanted by two of three agents of a pair that it knows nothing of."""
    made = Succession(B, 222, A, stands_by=True)
    made.tick(0.0)
    for session in (1, 2):
        made.consider(hello(session=session, epoch=epoch_of(0, 5), roster=3), 10.0)
    assert made.leads
    return made


def test_one_that_is_elected_and_knows_no_roster_hands_out_when_more_than_half_are_heard() -> None:
    """Those that wanted it may be back at the other one by now: it has come to lead, and nothing follows from that."""
    made = elected_anew()
    made.agent_joined(1)
    made.agents_heard([1], 10.1)
    made.tick(10.1)
    assert not made.hands_out
    made.agent_joined(2)
    made.tick(10.2)
    assert not made.hands_out
    made.agents_heard([1, 2], 10.3)
    made.tick(10.3)
    assert made.hands_out
    made.tick(30.0)
    assert made.hands_out, "it has no partner"


def test_one_that_is_elected_and_knows_no_roster_leads_in_a_term_above_that_of_its_electors() -> None:
    """Both were killed after three hand-overs: agents hear none of a lower term, and would end it as they come."""
    made = Succession(B, 222, A, stands_by=True)
    made.tick(0.0)
    comes = [made.consider(hello(session=session, epoch=epoch_of(3, 5), roster=3), 10.0) for session in (1, 2, 3)]
    assert comes[1:] == [None, None]
    assert made.leads
    assert term_of(made.epoch) == 4


def test_one_that_is_elected_and_knows_no_roster_is_told_it_or_promoted() -> None:
    told = elected_anew()
    told.agent_joined(1)
    told.hear_partner(PartnerReport(epoch_of(0, 5), False, A, 3, True, u64([1])), 10.1)
    told.agents_heard([1], 10.2)
    told.tick(10.2)
    assert told.hands_out
    promoted = elected_anew()
    assert promoted.promote(10.1) == ""
    assert promoted.hands_out


def test_agents_of_a_scheduler_without_a_partner_come_back_at_once() -> None:
    again = Succession(A, 5)
    assert again.consider(hello(epoch=epoch_of(0, 77)), 0.0) is None
    assert again.consider(hello(epoch=epoch_of(2, 77)), 0.0) is None, "one was promoted once, and has no partner"
    assert term_of(again.epoch) == 2
    assert any(isinstance(wish, Announce) for wish in again.take())


def test_a_hand_over(pair: Pair) -> None:
    pair.agents(range(1, 6), pair.a)
    assert pair.a.hand_over(7, 1, pair.now) == ""
    assert pair.a.hand_over(8, 1, pair.now) == "somebody else hands it over at this moment"
    pair.step(1.0)
    assert pair.b.leads
    assert not pair.a.leads
    wanted = pair.wanted[A]
    assert Answer(7, 1, "") in wanted
    kept = [i for i, wish in enumerate(wanted) if wish == KeepJobs(False)]
    assert kept
    assert kept[0] < next(i for i, wish in enumerate(wanted) if isinstance(wish, StepDown))
    logged = [wish for site in (A, B) for wish in pair.wanted[site] if isinstance(wish, Log)]
    assert [wish.text for wish in logged if wish.level == "WARNING"] == []  # as planned
    assert Log("INFO", "Scheduler: leads from now on, in term 1: it was asked to") in logged
    assert not pair.b.hands_out
    pair.agents(range(1, 4), pair.b)
    assert pair.b.hands_out
    assert pair.b.roster == 5


def test_a_hand_over_that_is_not_answered(pair: Pair) -> None:
    pair.agents(range(1, 6), pair.a)
    assert pair.a.hand_over(7, 1, pair.now) == ""
    pair.is_cut = True
    pair.step(YIELD + 1)
    (answer,) = (wish for wish in pair.wanted[A] if isinstance(wish, Answer))
    assert "did not answer" in answer.error


def test_one_that_is_promoted_while_it_hands_over_leads_on(pair: Pair) -> None:
    pair.agents(range(1, 6), pair.a)
    pair.is_cut = True
    assert pair.a.hand_over(7, 1, pair.now) == ""
    assert not pair.a.hands_out
    assert pair.a.promote(pair.now) == ""
    pair.step(YIELD + 1)
    assert pair.a.leads
    assert pair.a.hands_out
    (answer,) = (wish for wish in pair.wanted[A] if isinstance(wish, Answer))
    assert "promoted" in answer.error
    assert [wish.here for wish in pair.wanted[A] if isinstance(wish, KeepJobs)][-2:] == [False, True]
    pair.is_cut = False
    pair.step(2.0)
    assert pair.a.leads
    assert not pair.b.leads


def test_who_was_at_one_that_stepped_down_and_leads_again_keeps_its_number(pair: Pair) -> None:
    """What clients have at an agent is known by that number: under another one it is waited for, and then lost."""

    def made(first: int) -> Acceptor:
        return Acceptor(Terms(pair.a.epoch, PROTOCOL_VERSION, True, 1.0, 10.0, 10.0, 1 << 20), first_number=first)

    connections = count(1)

    def come(acceptor: Acceptor, said: Hello) -> int:
        connection = next(connections)
        assert Pairing(pair.a, acceptor).admits(connection, said, pair.now)
        (joined,) = acceptor.receive(connection, Envelope(0, 0, said), 0)
        assert isinstance(joined, Joined)
        return joined.number

    pair.agents(range(1, 4), pair.a)
    said = hello(roster=3)
    said.number, said.epoch = come(made(100), said), pair.a.epoch
    assert pair.a.hand_over(7, 1, pair.now) == ""
    pair.is_cut = True
    pair.step(YIELD + SUSPECT)
    assert any(isinstance(wish, StepDown) for wish in pair.wanted[A])
    acceptor = made(500)
    monitor = hello(Role.MONITOR, session=9, others=0)
    monitor.number, monitor.epoch = come(acceptor, monitor), pair.a.epoch
    assert not pair.a.leads
    pair.come(range(2, 4), pair.a, told=3)
    assert come(acceptor, said) == said.number
    assert pair.a.leads
    # of those that were here since
    assert acceptor.receive(2, Envelope(0, 0, monitor), 0) == ()
    assert acceptor.outgoing[-1].message.resumed


def test_a_hand_over_needs_a_standby() -> None:
    assert "no other scheduler stands by" in Succession(A, 1).hand_over(1, 1, 0.0)
    assert "stands by for the one at tcp://a:1" in Succession(B, 1, A, stands_by=True).hand_over(1, 1, 0.0)


def test_somebody_promotes_a_standby_that_does_not_hear_enough(pair: Pair) -> None:
    pair.agents(range(1, 3), pair.a)
    assert pair.a.promote(pair.now) == "this scheduler leads already"
    pair.is_cut = True
    pair.step(SUSPECT + BEAT)
    assert all(pair.come(range(1, 2), pair.b, told=2)), "one of two is not more than half"
    assert pair.b.promote(pair.now) == ""
    assert pair.b.leads
    assert pair.b.hands_out
    assert term_of(pair.b.epoch) == 1
    pair.is_cut = False
    pair.step(2.0)
    assert not pair.a.leads


def test_a_standby_that_says_goodbye_is_counted_on_no_more(pair: Pair) -> None:
    pair.agents(range(1, 6), pair.a)
    pair.is_cut = True
    pair.a.lose_partner(pair.now, said_goodbye=True)
    assert pair.a.roster == 0
    assert pair.a.wake is None
    pair.step(LEASE + 1)
    assert pair.a.hands_out


def test_one_that_was_alone_once_and_leads_again_counts_on_its_standby(pair: Pair) -> None:
    """That has the roster of nobody from this one, and not of anybody that this one knows nothing of."""
    pair.agents(range(1, 4), pair.a)
    pair.a.lose_partner(pair.now, said_goodbye=True)
    pair.a.hear_partner(PartnerReport(epoch_of(1, 333), True, B, 0, False, u64()), pair.now)
    assert not pair.a.leads, "the other one was elected, and is killed"
    pair.b = Succession(B, 444, A, stands_by=True)
    pair.step(1.0)
    assert (pair.a.leads, pair.b.leads) == (True, False)
    term = pair.a.term
    pair.step(2.0)
    assert (pair.a.is_paired, pair.b.is_paired, pair.a.term) == (True, True, term)
    assert pair.a.hands_out
    pair.agents(range(1, 4), pair.a)
    assert pair.a.roster == pair.b.roster == 3
    assert pair.a.hand_over(1, 1, pair.now) == ""
    pair.step(1.0)
    assert (pair.a.leads, pair.b.leads) == (False, True)


def test_one_that_was_promoted_counts_on_who_stands_by_again(pair: Pair) -> None:
    pair.agents(range(1, 4), pair.a)
    pair.is_cut = True
    pair.step(LEASE + BEAT)
    assert not pair.a.hands_out
    assert pair.a.promote(pair.now) == ""
    pair.is_cut = False
    pair.step(2.0)
    assert (pair.a.leads, pair.b.leads) == (True, False)
    assert (pair.a.is_paired, pair.b.is_paired) == (True, True)


def test_what_one_that_has_gone_said_last_makes_no_pair_of_nobody(pair: Pair) -> None:
    pair.agents(range(1, 4), pair.a)
    pair.b.tick(pair.now + BEAT)
    late = next(wish.report for wish in pair.b.take() if isinstance(wish, Tell))
    assert (late.epoch, late.changed) == (pair.a.epoch, False)
    pair.a.lose_partner(pair.now, said_goodbye=True)
    pair.a.hear_partner(late, pair.now)
    assert not pair.a.is_paired, "it may have been told of three that count"


def test_a_goodbye_that_was_said_while_this_one_was_stopped_is_none(pair: Pair) -> None:
    """The other one was started again since, and leads."""
    pair.agents(range(1, 4), pair.a)
    pair.now += 13.0
    pair.a.lose_partner(pair.now, said_goodbye=True)
    assert (pair.a.roster, pair.a.hands_out_at(pair.now)) == (3, False)
    pair.is_cut = True
    pair.step(LEASE + 1)
    assert not pair.a.hands_out
    pair.b = Succession(B, 333, A, stands_by=True)
    assert pair.come(range(1, 4), pair.b, told=3)[-1] is None
    pair.is_cut = False
    pair.step(1.0)
    assert (pair.a.leads, pair.b.leads) == (False, True)


def test_one_that_was_told_of_the_other_looks_for_it_though_that_said_goodbye(pair: Pair) -> None:
    """It may be started again as it was started first: as one that leads, and knows of nobody."""
    pair.agents(range(1, 4), pair.a)
    assert pair.a.hand_over(1, 1, pair.now) == ""
    pair.agents(range(1, 4), pair.b)
    pair.b.lose_partner(pair.now, said_goodbye=True)
    assert (pair.b.leads, pair.b.roster) == (True, 0)
    assert pair.b.seeks(pair.now + SUSPECT) == A
    pair.a = Succession(A, 333)
    pair.step(1.0)
    assert (pair.a.leads, pair.b.leads) == (False, True)


def test_a_closed_connection_is_soon_suspicious(pair: Pair) -> None:
    pair.agents(range(1, 4), pair.a)
    pair.is_cut = True
    pair.b.lose_partner(pair.now, said_goodbye=False)
    assert all(pair.come(range(1, 4), pair.b, told=3)), "it may be back at once"
    pair.step(0.75)
    assert pair.come(range(1, 3), pair.b, told=3)[-1] is None


def test_agents_that_did_not_come_with_the_others_count_no_more_in_the_end(pair: Pair) -> None:
    pair.agents(range(1, 6), pair.a)
    pair.a.hand_over(1, 1, pair.now)
    pair.step(1.0)
    pair.agents(range(1, 4), pair.b, 1.0)
    assert pair.b.roster == 5
    pair.agents(range(1, 4), pair.b, ABSENT + 2)
    assert pair.b.roster == 3


def ask(one: Succession, since: float, seconds: float, strangers: bool = False) -> float | None:
    """Two agents that know of no pair look for a scheduler, and maybe one from a pair of five; when they are taken."""
    for step in range(int(2 * seconds) + 1):
        now = since + step / 2
        one.tick(now)
        one.take()
        if strangers and one.consider(hello(session=9, epoch=epoch_of(3, 5), roster=5), now) is None:
            return now
        if None in [one.consider(hello(session=session, epoch=epoch_of(0, 1)), now) for session in (1, 2)]:
            return now
    return None


def test_one_that_was_told_of_a_pair_goes_on_when_nobody_comes_from_there_any_more() -> None:
    """One message would end a scheduler for good, that of an agent which has no pair to go to any more."""
    one = Succession(A, 1)
    assert "was one of a pair" in str(one.consider(hello(session=9, epoch=epoch_of(3, 5), roster=5), 100.0))
    assert any(isinstance(wish, StepDown) for wish in one.take())
    assert ask(one, 100.0, 30.0) == 100.0 + HEARSAY
    assert one.hands_out


def test_one_that_was_told_of_a_pair_waits_as_long_as_somebody_comes_from_there() -> None:
    one = Succession(A, 1)
    one.consider(hello(session=9, epoch=epoch_of(3, 5), roster=5), 100.0)
    one.take()
    assert ask(one, 100.0, 60.0, strangers=True) is None
    assert ask(one, 160.5, 60.0) == 160.0 + HEARSAY


def lines(one: Succession) -> list[str]:
    """What it has written to the log since its wishes were taken."""
    return [wish.text for wish in one.take() if isinstance(wish, Log)]


def test_whom_one_waits_for_that_leads_nobody_is_said_once_and_what_to_do() -> None:
    """Agents that tell of a pair may be right, for as long as they do: nothing but a person ends that."""
    one = Succession(A, 1)
    told = hello(session=9, epoch=epoch_of(3, 5), roster=5)
    one.consider(told, 100.0)
    one.take()
    for now in range(101, 160):
        one.tick(now)
        assert one.consider(told, now)
        assert one.consider(hello(session=1), now)
    (line,) = lines(one)
    assert "led nobody for 10 s" in line
    assert "more than half of 5 agents, of whom 1 want it, as agent agent-9 has said" in line
    assert f"scaler promote {A}" in line
    assert not one.promote(160.0)
    assert one.hands_out


def test_one_whose_partner_leads_has_nothing_to_say_of_those_that_it_sends_away(pair: Pair) -> None:
    for _ in range(60):
        pair.step(0.5)
        assert pair.b.consider(hello(), pair.now)
    assert not [wish for wish in pair.wanted[B] if isinstance(wish, Log) and "nobody" in wish.text]


def test_whose_word_it_was_that_agents_count_is_said_while_none_of_them_comes() -> None:
    """They may be at the other one, if that is cut off from now on: it is not known to be wrong."""
    one = Succession(A, 1)
    one.agent_joined(1)
    one.hear_partner(PartnerReport(epoch_of(0, 9), False, B, 7, True, u64([91, 92, 93]), False), 100.0)
    for step in range(200):
        one.agents_heard([1], 100.0 + step / 4)
        one.tick(100.0 + step / 4)
    why = f"0 of the 3 agents that count are heard, as the one at {B} has said"
    assert one.trouble == why
    assert [line for line in lines(one) if "hands out" in line] == [
        f"Scheduler: hands out nothing for now: {why} (scaler promote {A})"
    ]
    assert not one.promote(160.0)
    assert one.hands_out


def test_one_that_knows_its_partner_is_not_led_by_agents_that_know_of_none() -> None:
    standby = Succession(B, 2, A, stands_by=True)
    standby.consider(hello(session=9, epoch=epoch_of(3, 5), roster=5), 100.0)
    assert ask(standby, 100.0, 60.0) is None
    heard = Succession(A, 1)
    heard.consider(hello(session=9, epoch=epoch_of(3, 5), roster=5), 100.0)
    heard.take()
    heard.hear_partner(PartnerReport(epoch_of(3, 5), True, B, 1, True, u64([9, 10])), 101.0)
    assert ask(heard, 101.0, 60.0) is None


def test_reports_that_cannot_be() -> None:
    one = Succession(A, 1)
    one.hear_partner(PartnerReport(epoch_of(MAX_TERM, 1), True, B, 1), 0.0)
    one.hear_partner(PartnerReport(epoch_of(5, 1), True, A, 1), 0.0)
    assert one.leads
    assert one.partner == "", "a term that nobody can have; a report of its own"
    assert one.consider(hello(epoch=epoch_of(MAX_TERM, 1)), 0.0) == "no scheduler has had this epoch"


@pytest.mark.parametrize("cls", [JournalState, JournalStart, JournalSynced])
@pytest.mark.parametrize(
    ("place", "is_refused"), [((2**31, 0), True), ((1, 2**62), True), ((2**31 - 1, 2**62 - 1), False)]
)
def test_no_journal_reaches_as_far_as_numbers_do(cls, place, is_refused) -> None:
    made = {JournalState: ("leads",), JournalStart: (True,), JournalSynced: ()}[cls]
    message = cls(7, *made, *place)
    if is_refused:
        with pytest.raises(Malformed, match="no journal reaches that far"):
            message.validate()
    else:
        message.validate()


def test_versions_of_rosters_come_to_no_end() -> None:
    """Whoever says that it stands by may have any: what is told then is one that can be told, and is taken up."""
    with pytest.raises(Malformed, match="versions of a roster are below"):
        PartnerReport(0, False, B, MAX_VERSION, True, u64([9])).validate()
    one = Succession(A, 1)
    one.take()
    one.agent_joined(5)
    one.hear_partner(PartnerReport(0, False, B, MAX_VERSION - 1, True, u64([9])), 0.0)
    one.tick(0.0)
    reports = [wish.report for wish in one.take() if isinstance(wish, Tell)]
    for report in reports:
        report.validate()
    assert (reports[-1].version, reports[-1].changed, list(reports[-1].roster)) == (1, True, [5, 9])


def test_terms_go_on_behind_the_highest_that_anybody_may_have() -> None:
    one = Succession(A, 1)
    assert one.consider(hello(epoch=epoch_of(MAX_TERM - 1, 1)), 0.0) is None
    one.hear_partner(PartnerReport(epoch_of(MAX_TERM - 1, 9), False, B, 1, True, u64([9])), 0.0)
    assert (one.term, one.epoch < 2**64) == (MAX_TERM, True)
    assert one.consider(hello(epoch=one.epoch), 0.0) is None, "those whom it has welcomed come again"
    assert one.consider(hello(epoch=epoch_of(MAX_TERM + 1, 1)), 0.0) == "no scheduler has had this epoch"


@pytest.mark.parametrize("seed", range(40))
def test_whatever_happens_two_do_not_hand_out_for_long(seed: int) -> None:
    """Agents go where they are taken, links are cut, both are killed and started again, by lot; then all is mended."""
    chance = random.Random(seed)
    pair = Pair()
    sessions = range(1, chance.choice((3, 4, 7)) + 1)
    #: session -> where it is, the highest term it has heard, the roster it was told, and when it tries again
    where: dict[int, Succession | None] = dict.fromkeys(sessions)
    term, told = dict.fromkeys(sessions, 0), dict.fromkeys(sessions, 0)
    cut: set[tuple[int, str]] = set()
    both_since: float | None = None

    def live(one: Succession, session: int) -> None:
        if (session, one.address) in cut:
            if chance.random() < 0.1:
                where[session] = None
        elif not one.leads:
            where[session] = None
        else:
            one.agents_heard([session], pair.now)
            told[session] = one.roster

    def seek(session: int) -> None:
        one = chance.choice((pair.a, pair.b))
        if (session, one.address) in cut:
            return
        said = hello(session=session, epoch=epoch_of(term[session], 9), roster=told[session])
        if one.consider(said, pair.now) is None and term_of(one.epoch) >= term[session]:
            where[session], term[session], told[session] = one, term_of(one.epoch), one.roster
            one.agent_joined(session)

    for step in range(1200):
        is_faulty = step < 800
        if is_faulty and chance.random() < 0.02:
            pair.is_cut = chance.random() < 0.5
        if is_faulty and chance.random() < 0.03:
            cut = {(s, address) for s in sessions for address in (A, B) if chance.random() < 0.3}
        if is_faulty and chance.random() < 0.01:
            old, name = (pair.a, "a") if chance.random() < 0.5 else (pair.b, "b")
            partner = A if name == "b" else ""
            setattr(pair, name, Succession(old.address, chance.getrandbits(40), partner, bool(partner)))
            where.update({s: None for s, at in where.items() if at is old})
        if is_faulty and chance.random() < 0.005:
            chance.choice((pair.a, pair.b)).hand_over(1, 1, pair.now)
        if not is_faulty:
            pair.is_cut = False
            cut = set()
        pair.step()
        for session in sessions:
            at = where[session]
            live(at, session) if at is not None else seek(session)
        both = pair.a.leads and pair.a.hands_out and pair.b.leads and pair.b.hands_out
        counted = pair.a.roster and pair.b.roster
        both_since = (both_since or pair.now) if both and counted else None
        assert both_since is None or pair.now - both_since < 2 * LEASE, f"both hand out since {both_since}"
    leaders = [one for one in (pair.a, pair.b) if one.leads]
    assert len(leaders) == 1, f"leads: {[one.address for one in leaders]}"
    assert leaders[0].hands_out
    assert all(at is leaders[0] for at in where.values())


def test_a_report_survives_the_wire() -> None:
    from scaler.protocol.codec import decode, encode

    report = PartnerReport(epoch_of(3, 9), True, A, 5, True, u64([1, 2**63]), True)
    assert decode(encode(report, 1, 0)).message == report


def test_a_peer_that_was_at_the_other_scheduler_begins_anew() -> None:
    """What this one has of its session is from before: to go on there would mix two conversations up."""
    acceptor = Acceptor(Terms(epoch_of(1, 7), PROTOCOL_VERSION, True, 1.0, 10.0, 10.0, 1 << 20))
    said = hello(Role.CLIENT, session=5)
    (joined,) = acceptor.receive(1, Envelope(0, 0, said), 0)
    assert isinstance(joined, Joined)
    acceptor.outgoing.clear()
    said = hello(Role.CLIENT, session=5, epoch=epoch_of(2, 9))
    assert acceptor.receive(2, Envelope(0, 0, said), 0) == (Lost(joined.number, LEFT),)
    (refusal,) = acceptor.outgoing
    assert refusal.message == Refused(LEFT, elsewhere=True)
    acceptor.forget(joined.number)
    said.number = joined.number
    (again,) = acceptor.receive(3, Envelope(0, 0, said), 0)
    assert (type(again), again.number) == (Joined, joined.number)
    # its own epochs it knows, also after another was announced
    acceptor.announce(epoch_of(3, 7), 4)
    said = hello(Role.CLIENT, session=5, epoch=epoch_of(1, 7))
    assert acceptor.receive(4, Envelope(0, 0, said), 0) == ()
    assert acceptor.outgoing[-1].message.resumed
    assert acceptor.outgoing[-1].message.roster == 4


def test_an_agent_hears_no_scheduler_of_a_lower_term() -> None:
    said = hello(session=5)
    initiator = Initiator(said)

    def welcomed_by(term: int) -> object:
        initiator.greet(0.0)
        welcome = Welcome(epoch_of(term, 3), 9, False, 0, 1, True, 1.0, 10.0, 1 << 20, roster=3)
        answer = initiator.receive(Envelope(0, 0, welcome), 0.0)
        if isinstance(answer, Established):
            initiator.disconnect("it is tried again")
        return answer

    assert isinstance(welcomed_by(2), Established)
    refused = welcomed_by(1)
    assert refused == Rejected("another scheduler has replaced this one", elsewhere=True)
    assert initiator.is_elsewhere
    assert isinstance(welcomed_by(3), Established)
    assert initiator.greet(0.0).message.roster == 3
    # with one address there is nobody else: whoever is there is listened to
    said.others = 0
    initiator = Initiator(said)
    assert isinstance(welcomed_by(2), Established)
    assert isinstance(welcomed_by(1), Established)


@pytest.mark.parametrize("seed", range(60))
def test_who_rests_would_do_nothing_if_it_looked(seed: int) -> None:
    """What is left out then is what would change nothing, whatever was heard before."""
    chance = random.Random(seed)
    one, now = Succession(A, 111, chance.choice(("", "", B))), 1000.0
    for _ in range(120):
        now += chance.choice((0.0, 0.001, BEAT / 2, SUSPECT))
        session = chance.randrange(1, 5)
        match chance.randrange(9):
            case 0:
                one.agent_joined(session)
            case 1:
                one.agents_heard([session], now)
            case 2:
                one.agent_left(session)
            case 3 if chance.random() < 0.1:
                one.hear_partner(PartnerReport(epoch_of(chance.randrange(3), 9), chance.random() < 0.3, B, 0), now)
            case 4 if chance.random() < 0.3:
                one.lose_partner(now, said_goodbye=chance.random() < 0.5)
            case 5:
                one.consider(hello(session=session, epoch=epoch_of(chance.randrange(2), 5)), now)
            case 6 if chance.random() < 0.1:
                one.consider(hello(session=session, epoch=epoch_of(0, 5), roster=2, others=3), now)
            case _:
                pass
        looks = copy.deepcopy(one)
        if one.rests(now):
            looks.tick(now)
            assert looks.take() == []
            assert _without_plans(looks) == _without_plans(one)
        else:
            one.tick(now)
            one.take()


def _without_plans(one: Succession) -> dict[str, object]:
    """All that counts of it: not when it looks next, which does nothing either."""
    seen = {**vars(one), "_roster": vars(one._roster), "_votes": vars(one._votes)}
    del seen["_next_look"], seen["_next_beat"]
    return seen


def test_a_scheduler_without_another_one_rests() -> None:
    one = Succession(A, 111)
    one.tick(1.0)
    one.take()
    one.agent_joined(7)
    assert one.rests(2.0)
    one.partner = B
    assert not one.rests(3.0)
