"""A scheduler with durable jobs whose journal somebody has written that is not trusted: each record of it is whole.

It begins, whatever its records say, and jobs can be submitted, run and read.
"""

from simulator.hostile_messages import Lot
from simulator.segments import pack_segments, records_of

from scaler.journal.records import Record
from scaler.protocol import messages as m
from support.enemies.jobs import JobsAmongEnemies, Server, end_all
from support.made_up_jobs import Paper

OWNERS = (0, 1, 2, 7, 2**31, 2**32 - 1, 2**62 - 1, 2**62, 2**64 - 1)
TERMS = (0, 1, 2, 2**31 - 1, 2**31, 2**32 - 1)
#: what stands for a number in JSON
WORDS = (b"-1", b"1e999", b"null", b"true", b'"x"', b"[]", b"18446744073709551616", b"4294967295", b"NaN")

Numbered = tuple[int, Record]


class AlteredRecords:
    """One life of a scheduler, which begins again and again from records that were changed."""

    def __init__(self, random: Lot) -> None:
        self.random = random
        self.story = JobsAmongEnemies(random, random)
        self.server: Server = self.story.server

    def live(self) -> None:
        """Jobs are submitted and run."""
        for _ in range(self.random.choice((3, 8, 20))):
            self.story.step()
        self.server.paper.sync()

    def begin_again(self) -> None:
        """The scheduler is killed, some records are changed, and it begins with them."""
        random, server = self.random, self.server
        found = records_of(server.paper.segments)
        for _ in range(random.choice((1, 1, 2, 4))):
            if found:
                self._alter(found)
        numbers = server.paper.segments
        server.paper = Paper(pack_segments(found, numbers), server.paper.most)
        server.start()

    def _alter(self, found: list[Numbered]) -> None:
        random, at = self.random, self.random.randrange(min(256, len(found)))
        (number, record), action = found[at], random.randrange(9)
        if action < 3 and record.frames:
            record = record._replace(frames=self._altered(record.frames))
        elif action == 3:
            record = record._replace(kind=random.choice((*range(10), 255)))
        elif action == 4:
            record = record._replace(owner=random.choice((*OWNERS, found[0][1].owner)))
        elif action == 5:
            record = record._replace(term=random.choice(TERMS))
        elif action == 6:
            record = record._replace(frames=random.choice((record.frames[:-1], (*record.frames, b"x"))))
        elif action == 7:
            found.insert(random.randrange(min(256, len(found))), (number, record))
        else:
            del found[at]
            return
        found[at] = number, record

    def _altered(self, frames: tuple[bytes | memoryview, ...]) -> tuple[bytes, ...]:
        """Some bytes of one frame are others; of JSON a number, as a rule."""
        random, altered = self.random, [bytes(frame) for frame in frames]
        which = random.randrange(min(256, len(altered)))
        frame = altered[which]
        digits = [at for at, byte in enumerate(frame[:256]) if chr(byte).isdigit()]
        if frame[:1] == b"{" and digits and random.random() < 0.7:
            at = random.choice(digits)
            frame = frame[:at] + random.choice(WORDS) + frame[at + 1 :]
        elif frame:
            at = random.randrange(min(256, len(frame)))
            frame = frame[:at] + random.randbytes(1) + frame[at + 1 :]
        altered[which] = frame
        return tuple(altered)

    def use(self) -> None:
        """Somebody submits, an agent runs what it is given, and what there is of each job is asked for."""
        server, story = self.server, self.story
        for peer in (story.decent, story.user):
            peer.connect()
        story.submit()
        for _ in range(4):
            server.wait(1.0, is_synced=True)
            end_all(server, story.decent, self.random)
        for name in ("decent", "a", "b"):
            for kind in ("list", "state", "note", "ordered", "finished"):
                story.user.say(m.JobQuestion(6, kind, name))
        server.wait(1.0, is_synced=True)
        server.paper.sync()
