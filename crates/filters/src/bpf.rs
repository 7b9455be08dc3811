//! Passes packets that a tcpdump expression matches.
//!
//! The system's libpcap compiles the expression (behind a trait, see `program::compile`), once for each link type that
//! comes. The interpreter of the `program` crate runs the programs. Tiers:
//! - A batch of one view: one call of the interpreter for up to 64 packets, and one word of live bits.
//! - A batch of several link types: one such call for each.

use base::limits::BATCH_BLOCKS;
use filter::batch::places;
use filter::prelude::*;
use packet::link::LinkType;
use packet::malformed::Malformed;
use program::Interpreter;
use program::cbpf::Instruction;
use program::compile::{Compile, CompileError, CompileErrorKind};
use program::interpreter::Frame;
use std::sync::Arc;

/// What `bpf` is.
pub static KIND: Kind = Kind::new("bpf", "passes packets that a tcpdump expression matches", make)
    .also(&["filter", "expr", "expression"])
    .help(
        "The expression is what tcpdump and libpcap take, and means the same: see pcap-filter(7). So `port 80` does \
         not see behind VLAN tags unless `vlan` stands before it in the expression; the filter `port` does. An empty \
         expression passes everything. The expression is compiled for each link type of the input: one that cannot \
         be asked of a link type that comes (`ether host` of raw IP) ends the run with an error. Needs the system's \
         libpcap (Debian: libpcap0.8).",
    )
    .params(&[Param::new("expr", ParamType::Text, "a tcpdump expression, in quotes").required().main()])
    .expression("expr")
    .takes(&[Type::Frame, Type::Packet])
    .selects()
    .lowers(Lower::Program(lower))
    .examples(&[Example {
        request: "pcap browse.pcap | bpf \"tcp[tcpflags] & tcp-syn != 0\" | count",
        output: "{\"blocks\":2,\"bytes\":124,\"wire_bytes\":124}\n",
    }]);

/// The snap length given to libpcap. No file holds longer packets, so programs never crop.
const SNAP_LEN: u32 = 262_144;

/// Link types with keywords of their own: 802.11, Linux cooked capture, PF log, SunATM, MTP2. An expression that Ethernet
/// and all of these refuse is wrong for every other link type, too.
const SPECIAL: [LinkType; 5] = [LinkType(127), LinkType::LINUX_SLL, LinkType(117), LinkType(123), LinkType(140)];

fn lower(params: &Params, compiler: &dyn Compile, link_type: u16) -> Result<Vec<Instruction>, String> {
    let expression = params.text("expr").unwrap_or_default();
    compiler.compile(expression, link_type, SNAP_LEN).map_err(|error| error.message)
}

fn make(params: &Params, env: &Env) -> Result<Instance, ParamError> {
    let expression = params.text("expr").unwrap_or_default().to_string();
    let mut bpf = Bpf { expression, compiler: Arc::clone(&env.compiler), programs: Vec::new() };
    match bpf.compile(LinkType::ETHERNET) {
        Ok(program) => bpf.programs.push((LinkType::ETHERNET, program)),
        Err(error) => match error.kind {
            CompileErrorKind::Unavailable => {
                return Err(ParamError { system: true, ..ParamError::new("expr", error.message) });
            }
            // The expression may suit another link type, which is known only when blocks come.
            CompileErrorKind::Syntax if SPECIAL.iter().any(|link| bpf.compile(*link).is_ok()) => {}
            CompileErrorKind::Syntax => return Err(ParamError::new("expr", error.message)),
        },
    }
    Ok(Instance::filter(bpf))
}

struct Bpf {
    expression: String,
    compiler: Arc<dyn Compile>,
    /// Searched from the front: there are few link types.
    programs: Vec<(LinkType, Interpreter)>,
}

impl Bpf {
    fn compile(&self, link: LinkType) -> Result<Interpreter, CompileError> {
        let code = self.compiler.compile(&self.expression, link.0, SNAP_LEN)?;
        Interpreter::from_cbpf(&code).map_err(|error| CompileError::syntax(error.to_string()))
    }

    /// The program for a link type. The first call for a link type compiles it.
    fn program(&mut self, link: LinkType) -> Result<&Interpreter, Box<Failure>> {
        let at = match self.programs.iter().position(|(known, _)| *known == link) {
            Some(at) => at,
            None => {
                self.programs.push((link, self.compile(link).map_err(|error| self.refusal(link, &error))?));
                self.programs.len() - 1
            }
        };
        Ok(&self.programs[at].1)
    }

    #[cold]
    fn refusal(&self, link: LinkType, error: &CompileError) -> Box<Failure> {
        let text = format!("bpf \"{}\" cannot be asked of link type {link}: {}", self.expression, error.message);
        Box::new(match error.kind {
            CompileErrorKind::Syntax => Failure::Request(text),
            CompileErrorKind::Unavailable => Failure::System(text),
        })
    }
}

impl Filter for Bpf {
    fn run(&mut self, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
        let rings = &*cx.rings;
        let (mut left, mut kept) = (batch.live(), 0);
        while left != 0 {
            let first = *batch.block(left.trailing_zeros() as usize);
            let Some(link) = rings.link_type(&first) else {
                cx.counters.unread.add(Malformed::UnsupportedLink.reason(), 1);
                left &= left - 1;
                continue;
            };
            let mut frames = [Frame::default(); BATCH_BLOCKS];
            let mut at = [0u8; BATCH_BLOCKS];
            let (mut count, mut others) = (0, 0);
            batch.narrowed(left).read(rings, |place, block, bytes| {
                let same = (block.ring, block.generation) == (first.ring, first.generation)
                    || rings.link_type(block) == Some(link);
                if same {
                    frames[count] = Frame { bytes, wire_len: block.wire() };
                    at[count] = place as u8;
                    count += 1;
                } else {
                    others |= 1 << place;
                }
            });
            let passed = match self.program(LinkType(link)) {
                Ok(program) => program.select(&frames[..count]),
                Err(failure) => {
                    cx.drop_of(batch, u64::MAX, "expression cannot be asked of link type");
                    return Err(failure);
                }
            };
            // The batch has no gaps: a packet's number is its place.
            kept |= match left & left.wrapping_add(1) {
                0 if others == 0 => passed,
                _ => places(passed).fold(0, |kept, number| kept | 1 << at[number]),
            };
            left = others;
        }
        batch.keep(kept);
        Ok(Status::Done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use buffer::{Interface, ViewId};
    use filter::{Counters, Output};
    use std::sync::Mutex;
    use testkit::Chain;

    /// Knows `ip` for Ethernet and raw IP, `ether` for Ethernet, `wlan` for 802.11, and `long` for any link type. Records
    /// the link types that it was asked for.
    #[derive(Default)]
    struct Compiler {
        asked: Mutex<Vec<u16>>,
    }

    /// Passes packets with `value` in the `size` (0x28: two bytes, 0x30: one) at `offset` under `mask`.
    fn equal(size: u16, offset: u32, mask: u32, value: u32) -> Vec<Instruction> {
        let step = |code, jt, jf, k| Instruction { code, jt, jf, k };
        let load = [step(size, 0, 0, offset), step(0x54, 0, 0, mask), step(0x15, 0, 1, value)];
        [&load[..], &[step(0x06, 0, 0, SNAP_LEN), step(0x06, 0, 0, 0)]].concat()
    }

    impl Compile for Compiler {
        fn compile(&self, expression: &str, link: u16, snap_len: u32) -> Result<Vec<Instruction>, CompileError> {
            assert_eq!(snap_len, 262_144);
            self.asked.lock().unwrap().push(link);
            match (expression, link) {
                ("ip", 1) => Ok(equal(0x28, 12, 0xffff, 0x800)),
                ("ip", 101) => Ok(equal(0x30, 0, 0xf0, 0x40)),
                ("ether", 1) => Ok(equal(0x28, 12, 0, 0)),
                ("wlan", 127) => Ok(equal(0x30, 0, 0, 0)),
                // len >= 100
                ("long", _) => {
                    let step = |code, jt, jf, k| Instruction { code, jt, jf, k };
                    Ok(vec![step(0x80, 0, 0, 0), step(0x35, 0, 1, 100), step(0x06, 0, 0, 1), step(0x06, 0, 0, 0)])
                }
                ("absent", _) => Err(CompileError::unavailable("no libpcap: install libpcap0.8")),
                _ => Err(CompileError::syntax(format!("can't parse {expression} for {link}"))),
            }
        }

        fn describe(&self) -> String {
            "a test's".into()
        }
    }

    fn chain(link: u16, frames: &[Vec<u8>], expression: &str, compiler: &Arc<Compiler>) -> Chain {
        let frames: Vec<_> = frames.iter().map(|frame| (0, frame.clone())).collect();
        Chain::frames(link, &frames).compiler(compiler.clone()).then(&KIND, &[("expr", expression)])
    }

    fn frame(number: usize) -> Vec<u8> {
        let kind: [u8; 2] = if number.is_multiple_of(3) { [8, 0] } else { [8, 6] };
        [&[0; 12], &kind[..], &[number as u8]].concat()
    }

    #[test]
    fn passes_what_matches_whatever_the_size_of_the_batch() {
        for count in [0, 1, 2, 63, 64, 65, 200] {
            let frames: Vec<_> = (0..count).map(frame).collect();
            let outcome = chain(1, &frames, "ip", &Arc::default()).run();
            let passed: Vec<_> = outcome.blocks.iter().map(|block| block.bytes.clone()).collect();
            assert_eq!(passed, (0..count).step_by(3).map(frame).collect::<Vec<_>>());
        }
    }

    #[test]
    fn holes_in_a_batch_do_not_move_verdicts() {
        let frames: Vec<_> = (0..64).map(frame).collect();
        let packets: Vec<_> = frames.iter().map(|frame| (0, frame.clone())).collect();
        let chain = Chain::frames(1, &packets).compiler(Arc::<Compiler>::default()).then(&crate::ether::KIND, &[]);
        let outcome = chain.then(&crate::ether::KIND, &[("value", "arp")]).then(&KIND, &[("expr", "ether")]).run();
        let passed: Vec<_> = outcome.blocks.iter().map(|block| block.bytes[14]).collect();
        assert_eq!(passed, (0..64).filter(|number| number % 3 != 0).collect::<Vec<u8>>());
    }

    #[test]
    fn the_length_is_that_on_the_wire() {
        let pieces = [40, 99, 100, 1500].map(|wire| {
            let mut block = Descriptor::default();
            block.set_wire(wire);
            (block, vec![0; 40])
        });
        let chain = Chain::pieces(Type::Frame, Some(1), pieces.to_vec()).compiler(Arc::<Compiler>::default());
        let outcome = chain.then(&KIND, &[("expr", "long")]).run();
        assert_eq!(outcome.blocks.iter().map(|block| block.descriptor.wire()).collect::<Vec<_>>(), [100, 1500]);
    }

    #[test]
    fn other_link_types_are_compiled_for_when_they_come() {
        let compiler = Arc::<Compiler>::default();
        let outcome = chain(101, &[vec![0x45], vec![0x60], vec![]], "ip", &compiler).run();
        assert_eq!((outcome.blocks.len(), outcome.failure), (1, None));
        assert_eq!(*compiler.asked.lock().unwrap(), [1, 101]);
    }

    /// Blocks of two link types and of none side by side, as from a pcapng file with several interfaces.
    #[test]
    fn a_batch_of_several_link_types() {
        let mut rings = buffer::BlockTable::new();
        let segment = rings.add_append_ring();
        let mut view = |link_type| rings.add_view(segment, Interface { link_type, ..Interface::default() }).unwrap();
        let views: [ViewId; 4] = [view(Some(1)), view(Some(101)), view(None), view(Some(1))];
        let (ethernet, raw) = ([&[0; 12][..], &[8, 0]].concat(), vec![0x45]);
        let rows: [(usize, &[u8], bool); 7] = [
            (1, &raw, true),
            (0, &ethernet, true),
            (2, &ethernet, false),
            (3, &ethernet, true),
            (1, &ethernet, false),
            (0, &raw, false),
            (1, &raw, true),
        ];
        let mut blocks: Vec<_> =
            rows.iter().map(|(view, bytes, _)| rings.append_copy(views[*view], &[bytes]).unwrap()).collect();
        let env = Env {
            input: Types::of(&[Type::Frame]),
            stdout: Output::new(Box::new(std::io::sink()), false),
            compiler: Arc::<Compiler>::default(),
            schemas: Arc::new([]),
            wait: filter::Wait::default(),
            latency: None,
            make_ring: [].into(),
            daemon: None,
        };
        let Ok(Instance::Filter(mut bpf)) = make(&testkit::chain::params(&KIND, &[("expr", "ip")]), &env) else {
            panic!("a filter")
        };
        let mut batch = Batch::new(&mut blocks);
        let (mut counters, mut wake) = (Counters::default(), u64::MAX);
        let mut context = Context {
            rings: &mut rings,
            streams: &mut StreamTable::new(),
            out: &mut Vec::new(),
            counters: &mut counters,
            marks: &mut filter::Marks::default(),
            own: views[0],
            now: 0,
            exclusive: true,
            wanted: filter::Wanted::ALL,
            wake: &mut wake,
            notices: &mut Vec::new(),
            order: &mut filter::Order::default(),
            stop: &base::atomic::StopFlag::new(),
        };
        assert_eq!(bpf.run(&mut batch, &mut context), Ok(Status::Done));
        let expected = rows.iter().enumerate().fold(0, |live, (at, row)| live | u64::from(row.2) << at);
        assert_eq!((batch.live(), counters.unread.get("unsupported link type")), (expected, 1));
    }

    #[test]
    fn what_cannot_be_asked_of_a_link_type_ends_the_run() {
        let outcome = chain(101, &[vec![0x45]], "ether", &Arc::default()).run();
        let expected = "bpf \"ether\" cannot be asked of link type RAW: can't parse ether for 101";
        assert_eq!(outcome.failure, Some(Failure::Request(expected.into())));
        let outcome = chain(1, &[frame(0)], "wlan", &Arc::default()).run();
        assert!(matches!(outcome.failure, Some(Failure::Request(_))));
        let outcome = chain(127, &[frame(0)], "wlan", &Arc::default()).run();
        assert_eq!((outcome.blocks.len(), outcome.failure), (1, None));
    }

    #[test]
    fn refusals() {
        let check = |expression: &str, message: &str, system: bool| {
            let error = chain(1, &[], expression, &Arc::default()).refusal().unwrap();
            assert_eq!((error.key, error.message.as_str(), error.system), (Some("expr"), message, system));
        };
        check("tcp prot 80", "can't parse tcp prot 80 for 1", false);
        check("absent", "no libpcap: install libpcap0.8", true);
    }
}
