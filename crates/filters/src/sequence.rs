//! Checks the sequence numbers of numbered frames: reports missing, repeated and late ones.

use crate::generate::{MAGIC, NUMBER_BYTES};
use crate::parts::select::{Links, View};
use filter::prelude::*;
use packet::frame::protocol;

static SCHEMA: Schema = Schema::new(
    "sequence",
    &[
        Field::new("frames", FieldType::Number),
        Field::new("lost", FieldType::Number),
        Field::new("gaps", FieldType::Number),
        Field::new("repeated", FieldType::Number),
        Field::new("late", FieldType::Number),
        Field::new("unnumbered", FieldType::Number),
        Field::new("first", FieldType::Number),
        Field::new("last", FieldType::Number),
    ],
);

/// The kind `sequence`.
pub static KIND: Kind = Kind::new("sequence", "checks the numbers of numbered frames, one record at the end", make)
    .help(
        "Reads the numbers that `generate`, and the kernel's pktgen, write into their frames (UDP, TCP or ICMP), and gives one \
         record when the input ends. `frames`: that had a number; `lost`: numbers between the first and the last that did not \
         come; `gaps`: times at which numbers were left out; `repeated`: frames whose number had come before; `late`: frames \
         that came after one with a higher number; `unnumbered`: frames without a number; `first` and `last`: the lowest \
         number and the highest.\n\
         \n\
         count=1M says that a million numbers from 0 on were sent, so that those missing at either end are lost, too. With \
         strict=yes the run fails, with status 1, where a frame is lost, repeated, late or without a number.\n\
         \n\
         Numbers may go on past 4,294,967,295, where they begin at 0 again. What comes later than a million numbers behind the \
         highest is taken for repeated.",
    )
    .params(&[
        Param::new("count", ParamType::Number, "how many were sent, if all are to come; 0 = unknown").default("0").main(),
        Param::new("strict", ParamType::Flag, "fail where not every frame came once and in order").default("no"),
    ])
    .takes(&[Type::Frame, Type::Packet])
    .gives_records(&SCHEMA)
    .mode(Mode::Serial)
    .examples(&[Example {
        request: "generate count=1M | sequence count=1M",
        output: "{\"frames\":1000000,\"lost\":0,\"gaps\":0,\"repeated\":0,\"late\":0,\"unnumbered\":0,\"first\":0,\"last\":999999}",
    }]);

/// How many of the last numbers are remembered as arrived or missing.
const WINDOW: u64 = 1 << 20;

fn make(params: &Params, _env: &Env) -> Result<Instance, ParamError> {
    let count = params.number("count").filter(|count| *count > 0);
    Ok(Instance::filter(Sequence { numbers: Numbers::new(), unnumbered: 0, count, strict: params.flag("strict") }))
}

struct Sequence {
    numbers: Numbers,
    unnumbered: u64,
    /// Number of frames sent, if known.
    count: Option<u64>,
    strict: bool,
}

/// The numbers that have arrived.
struct Numbers {
    /// One bit for each of the last [`WINDOW`] numbers.
    came: Vec<u64>,
    /// The lowest and the highest number, extended past 32 bits.
    ends: Option<(u64, u64)>,
    frames: u64,
    gaps: u64,
    repeated: u64,
    late: u64,
}

/// The first number is extended by this, so that an earlier one that arrives late is not below 0.
const START: u64 = 1 << 32;

impl Numbers {
    fn new() -> Numbers {
        Numbers { came: vec![0; (WINDOW / 64) as usize], ends: None, frames: 0, gaps: 0, repeated: 0, late: 0 }
    }

    #[inline]
    fn add(&mut self, number: u32) {
        self.frames += 1;
        let Some((_, highest)) = &mut self.ends else {
            let number = START + u64::from(number);
            self.ends = Some((number, number));
            self.mark(number);
            return;
        };
        // The signed distance from the highest number: ahead of it, or behind.
        let ahead = number.wrapping_sub(*highest as u32) as i32;
        if ahead == 1 {
            *highest += 1;
            let number = *highest;
            return self.mark(number);
        }
        self.add_other(ahead);
    }

    #[inline]
    fn mark(&mut self, number: u64) {
        self.came[(number % WINDOW / 64) as usize] |= 1 << (number % 64);
    }

    #[cold]
    fn add_other(&mut self, ahead: i32) {
        let Some((lowest, highest)) = &mut self.ends else { return };
        let number = highest.wrapping_add_signed(ahead.into());
        if ahead > 0 {
            self.gaps += 1;
            let missing = *highest + 1..number;
            *highest = number;
            // Clear the bits of the missing numbers. Numbers that left the window are forgotten.
            missing
                .take(WINDOW as usize)
                .for_each(|number| self.came[(number % WINDOW / 64) as usize] &= !(1 << (number % 64)));
            return self.mark(number);
        }
        let is_known = *highest - number < WINDOW;
        let came =
            is_known && number >= *lowest && self.came[(number % WINDOW / 64) as usize] & 1 << (number % 64) != 0;
        if came || !is_known {
            self.repeated += 1;
            return;
        }
        self.late += 1;
        *lowest = number.min(*lowest);
        self.mark(number);
    }
}

#[inline]
fn number_of(view: View<'_>) -> Option<u32> {
    let packet = view.packet().ok().filter(|packet| !packet.later_fragment)?;
    let header_bytes = match packet.protocol {
        protocol::UDP | protocol::ICMP | protocol::ICMPV6 => 8,
        protocol::TCP => usize::from(packet.payload.get(12)? >> 4) * 4,
        _ => return None,
    };
    let header: &[u8; NUMBER_BYTES] = packet.payload.get(header_bytes..)?.first_chunk()?;
    let word = |at: usize| u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    (word(0) == MAGIC).then(|| word(4))
}

impl Filter for Sequence {
    fn run(&mut self, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
        let (rings, mut links) = (&*cx.rings, Links::default());
        let Sequence { numbers, unnumbered, .. } = self;
        batch.read(rings, |_, block, bytes| {
            let link = links.of(rings, block);
            match link.and_then(|link| number_of(View { link, bytes, wire_len: block.wire() })) {
                Some(number) => numbers.add(number),
                None => *unnumbered += 1,
            }
        });
        Ok(Status::Done)
    }

    fn finish(&mut self, cx: &mut Context<'_>) -> Made {
        let Sequence { numbers, unnumbered, count, strict } = self;
        let sent = count.map(|count| (START, START + count - 1));
        let all = match (numbers.ends, sent) {
            (Some(came), Some(sent)) => Some((came.0.min(sent.0), came.1.max(sent.1))),
            (came, sent) => came.or(sent),
        };
        let came = numbers.frames - numbers.repeated;
        let lost = all.map_or(0, |(first, last)| last - first + 1 - came);
        let mut row = RowWriter::new(&SCHEMA);
        row.number("frames", numbers.frames).number("lost", lost).number("gaps", numbers.gaps);
        row.number("repeated", numbers.repeated).number("late", numbers.late).number("unnumbered", *unnumbered);
        if let Some((first, last)) = numbers.ends {
            // Reported as in the frames. Only the highest is extended past 32 bits.
            row.number("first", u64::from(first as u32)).number("last", last.saturating_sub(START));
        }
        if let Some(mut block) = cx.rings.append_copy(cx.own, &[row.row()]) {
            block.time = cx.now;
            cx.emit(block);
        }
        let wrong =
            [(lost, "lost"), (numbers.repeated, "repeated"), (numbers.late, "late"), (*unnumbered, "without a number")];
        let wrong: Vec<String> =
            wrong.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")).collect();
        match *strict && !wrong.is_empty() {
            true => {
                Err(Box::new(Failure::System(format!("not every frame came once and in order: {}", wrong.join(", ")))))
            }
            false => Ok(Status::Done),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::Chain;
    use testkit::packets::{CLIENT, SERVER, tcp, udp};

    fn header(number: u32) -> Vec<u8> {
        [MAGIC, number, 0, 0].map(u32::to_be_bytes).concat()
    }

    /// Checks the record for frames with these numbers. `expected` is in the order of the schema.
    fn check(numbers: &[u32], given: &[(&str, &str)], expected: [Option<u64>; 8]) -> Option<Failure> {
        let frames: Vec<_> = numbers.iter().map(|number| (0, udp(CLIENT, SERVER, &header(*number)))).collect();
        let outcome = Chain::frames(1, &frames).then(&KIND, given).run();
        let [record] = &outcome.blocks[..] else { panic!("one record") };
        let row = Row::new(&SCHEMA, &record.bytes).unwrap();
        let found =
            ["frames", "lost", "gaps", "repeated", "late", "unnumbered", "first", "last"].map(|name| row.number(name));
        assert_eq!(found, expected, "{numbers:?} {given:?}");
        outcome.failure
    }

    #[test]
    fn what_is_wrong_is_told_apart() {
        let row = |numbers: [u64; 8]| numbers.map(Some);
        check(&[0, 1, 2, 3], &[], row([4, 0, 0, 0, 0, 0, 0, 3]));
        check(&[5, 6, 9, 10, 20], &[], row([5, 11, 2, 0, 0, 0, 5, 20]));
        check(&[0, 2, 1, 3], &[], row([4, 0, 1, 0, 1, 0, 0, 3]));
        check(&[0, 1, 1, 2, 0], &[], row([5, 0, 0, 2, 0, 0, 0, 2]));
        check(&[7, 9, 8, 8, 6, 6], &[], row([6, 0, 1, 2, 2, 0, 6, 9]));
        check(&[u32::MAX - 1, u32::MAX, 0, 2], &[], row([4, 1, 1, 0, 0, 0, u64::from(u32::MAX) - 1, 1 << 32 | 2]));
        check(&[0, u32::MAX], &[], row([2, 0, 0, 0, 1, 0, u64::from(u32::MAX), 0]));
        check(&[0, 3_000_000, 1, 2_999_999], &[], row([4, 2_999_998, 1, 1, 1, 0, 0, 3_000_000]));
        check(&[], &[], [Some(0), Some(0), Some(0), Some(0), Some(0), Some(0), None, None]);
    }

    #[test]
    fn a_count_says_what_is_missing_at_the_ends() {
        let row = |numbers: [u64; 8]| numbers.map(Some);
        check(&[2, 3], &[("count", "10")], row([2, 8, 0, 0, 0, 0, 2, 3]));
        check(&[0, 1], &[("count", "2")], row([2, 0, 0, 0, 0, 0, 0, 1]));
        check(&[], &[("count", "3")], [Some(0), Some(3), Some(0), Some(0), Some(0), Some(0), None, None]);
        check(&[0, 1, 2, 3], &[("count", "2")], row([4, 0, 0, 0, 0, 0, 0, 3]));
    }

    #[test]
    fn strict_fails_where_anything_is_wrong_and_says_what() {
        let row = |numbers: [u64; 8]| numbers.map(Some);
        assert_eq!(check(&[0, 1], &[("count", "2"), ("strict", "yes")], row([2, 0, 0, 0, 0, 0, 0, 1])), None);
        let failure = check(&[0, 2, 1, 1], &[("count", "5"), ("strict", "yes")], row([4, 2, 1, 1, 1, 0, 0, 2]));
        let expected = "not every frame came once and in order: 2 lost, 1 repeated, 1 late";
        assert_eq!(failure, Some(Failure::System(expected.into())));
    }

    /// The numbers count as with an ideal set of the last [`WINDOW`] numbers, whatever jumps occur.
    #[test]
    fn behaves_as_a_set() {
        let mut random = testkit::random::Random(3);
        let (mut numbers, mut set, mut next) = (Numbers::new(), std::collections::BTreeSet::new(), 0u32);
        for _ in 0..50_000 {
            let number = match random.below(10) {
                0 => next.saturating_sub(random.below(WINDOW as usize) as u32),
                1 => next + random.below(50_000) as u32,
                _ => next,
            };
            next = next.max(number + 1);
            let (repeated, late) = (numbers.repeated, numbers.late);
            let was_new = set.insert(number);
            numbers.add(number);
            assert_eq!(numbers.repeated - repeated, u64::from(!was_new), "{number} of {next}");
            assert_eq!(numbers.late - late, u64::from(was_new && number + 1 != next), "{number} of {next}");
        }
    }

    #[test]
    fn other_frames_have_no_number() {
        let mut cut = udp(CLIENT, SERVER, &header(1));
        cut.truncate(14 + 20 + 8 + 15);
        let numbered = tcp(CLIENT, SERVER, 1, 1, 16, &header(0));
        let frames: Vec<_> =
            [udp(CLIENT, SERVER, &[7; 40]), cut, vec![0; 60], vec![], numbered].map(|frame| (0, frame)).into();
        let outcome = Chain::frames(1, &frames).then(&KIND, &[]).run();
        let row = Row::new(&SCHEMA, &outcome.blocks[0].bytes).unwrap();
        assert_eq!((row.number("frames"), row.number("unnumbered")), (Some(1), Some(4)));
    }
}
