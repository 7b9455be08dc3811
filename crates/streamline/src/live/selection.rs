//! Selectors that run below: single ones, and those joined by `and`, `or` and `not`.
//!
//! In: nodes of a plan. Out: the expression for a program, and what decides in the reader about packets that the
//! program cannot tell about.

use capture::ETHERNET;
use engine::{Choice, NodeId, Plan, Task};
use filter::prelude::Class;
use filter::{Decides, Kind, Lower, Malformed, Params};
use program::{Compile, Expression, Interpreter};

/// A selector or a combination of selectors at one place of a plan, as far as it may run below.
#[derive(Clone, Debug)]
pub(crate) enum Selection {
    Filter(&'static Kind, Params),
    All(Vec<Selection>),
    Any(Vec<Selection>),
    Not(Box<Selection>),
}

impl Selection {
    /// Reads a choice whose operands are these nodes. `None`: it looks at classes, which no program knows.
    pub(crate) fn of(choice: &Choice, node: &dyn Fn(NodeId) -> Option<(&'static Kind, Params)>) -> Option<Selection> {
        let all = |parts: &[Choice]| parts.iter().map(|part| Selection::of(part, node)).collect::<Option<Vec<_>>>();
        Some(match choice {
            Choice::Filter(id) => {
                let (kind, params) = node(*id)?;
                Selection::Filter(kind, params)
            }
            Choice::Class(_) => return None,
            Choice::All(parts) => Selection::All(all(parts)?),
            Choice::Any(parts) => Selection::Any(all(parts)?),
            Choice::Not(part) => Selection::Not(Box::new(Selection::of(part, node)?)),
            // Nothing in this part looks at classes.
            Choice::KeepClass(part) => Selection::of(part, node)?,
        })
    }

    /// Its expression over frames of a link type. The error says why there is none.
    pub(crate) fn expression(&self, compiler: &dyn Compile, link_type: u16) -> Result<Expression, String> {
        let all = |parts: &[Selection]| {
            parts.iter().map(|part| part.expression(compiler, link_type)).collect::<Result<Vec<_>, _>>()
        };
        Ok(match self {
            Selection::Filter(kind, params) => match kind.lower {
                Some(Lower::Program(lower)) => {
                    let code = lower(params, compiler, link_type)?;
                    Expression::Program(program::from_cbpf(&code).map_err(|error| error.to_string())?)
                }
                Some(Lower::Selects(_)) if link_type != ETHERNET => {
                    return Err(format!("the program for `{}` is one for Ethernet", kind.name));
                }
                Some(Lower::Selects(_)) => {
                    let predicate = kind.pre_filter.and_then(|pre_filter| pre_filter(params));
                    Expression::Packet(predicate.ok_or_else(|| no_program(kind))?)
                }
                _ => return Err(no_program(kind)),
            },
            Selection::All(parts) => Expression::All(all(parts)?),
            Selection::Any(parts) => Expression::Any(all(parts)?),
            Selection::Not(part) => Expression::Not(Box::new(part.expression(compiler, link_type)?)),
        })
    }

    /// Makes what decides in the reader and gives the class. `None`: a program tells about all packets.
    pub(crate) fn decider(&self, compiler: &dyn Compile, link_type: u16) -> Result<Option<Box<dyn Decides>>, String> {
        match self {
            Selection::Filter(Kind { lower: Some(Lower::Selects(make)), .. }, params) => {
                make(params).map(Some).map_err(|error| error.message)
            }
            Selection::Filter(..) => Ok(None),
            _ if self.expression(compiler, link_type)?.is_exact() => Ok(None),
            _ => Ok(Some(Box::new(self.test(compiler, link_type)?))),
        }
    }

    fn test(&self, compiler: &dyn Compile, link_type: u16) -> Result<Test, String> {
        let all = |parts: &[Selection]| {
            parts.iter().map(|part| part.test(compiler, link_type)).collect::<Result<Vec<_>, _>>()
        };
        Ok(match self {
            Selection::Filter(Kind { lower: Some(Lower::Selects(make)), .. }, params) => {
                Test::Selector(make(params).map_err(|error| error.message)?)
            }
            Selection::Filter(..) => match self.expression(compiler, link_type)? {
                Expression::Program(program) => Test::Program(Interpreter::new(&program)),
                _ => return Err("it is no program".into()),
            },
            Selection::All(parts) => Test::All(all(parts)?),
            Selection::Any(parts) => Test::Any(all(parts)?),
            Selection::Not(part) => Test::Not(Box::new(part.test(compiler, link_type)?)),
        })
    }

    pub(crate) fn is_typed(&self) -> bool {
        match self {
            Selection::Filter(kind, _) => is_typed(kind),
            Selection::All(parts) | Selection::Any(parts) => parts.iter().any(Selection::is_typed),
            Selection::Not(part) => part.is_typed(),
        }
    }

    /// Whether a packet passes whole if it passes cut. Cutting makes a packet pass fewer selectors, so a `Not` may pass cut
    /// packets only.
    pub(crate) fn is_of_cut_packets(&self) -> bool {
        match self {
            Selection::Filter(..) => true,
            Selection::All(parts) | Selection::Any(parts) => parts.iter().all(Selection::is_of_cut_packets),
            Selection::Not(_) => false,
        }
    }
}

/// The selection at a node of a plan. `None`: no program can know it.
pub(super) fn selection(plan: &Plan, at: NodeId) -> Option<Selection> {
    match &plan.nodes[at.index()].task {
        Task::Filter { kind, params } => Some(Selection::Filter(kind, params.clone())),
        Task::Choose(choice) => Selection::of(choice, &|id| match &plan.nodes[id.index()].task {
            Task::Filter { kind, params } => Some((*kind, params.clone())),
            Task::Choose(_) => None,
        }),
    }
}

pub(crate) fn is_typed(kind: &Kind) -> bool {
    matches!(kind.lower, Some(Lower::Selects(_)))
}

/// Whether it is a typed selector that only the reader can decide for some packets.
pub(crate) fn is_undecided(kind: &Kind, params: &Params) -> bool {
    let predicate = kind.pre_filter.and_then(|pre_filter| pre_filter(params));
    is_typed(kind) && !predicate.is_some_and(|predicate| Expression::Packet(predicate).is_exact())
}

fn no_program(kind: &Kind) -> String {
    format!("there is no program for `{}`", kind.name)
}

/// A selection that can be asked about a packet.
enum Test {
    Selector(Box<dyn Decides>),
    Program(Interpreter),
    All(Vec<Test>),
    Any(Vec<Test>),
    Not(Box<Test>),
}

impl Test {
    fn passes(&self, link_type: u16, bytes: &[u8], wire_len: u32) -> bool {
        let passes = |test: &Test| test.passes(link_type, bytes, wire_len);
        match self {
            Test::Selector(test) => matches!(test.read(link_type, bytes, wire_len, Class(0)), Ok(Some(_))),
            Test::Program(test) => test.run(bytes, wire_len) != 0,
            Test::All(parts) => parts.iter().all(passes),
            Test::Any(parts) => parts.iter().any(passes),
            Test::Not(part) => !passes(part),
        }
    }
}

/// A choice keeps the class.
impl Decides for Test {
    fn read(&self, link_type: u16, bytes: &[u8], wire_len: u32, class: Class) -> Result<Option<Class>, Malformed> {
        Ok(self.passes(link_type, bytes, wire_len).then_some(class))
    }
}

pub(crate) struct OneByOne(pub(crate) Vec<Box<dyn Decides>>);

impl Decides for OneByOne {
    fn by_ports(&self, ports: u32) -> Option<Option<Class>> {
        match &self.0[..] {
            [one] => one.by_ports(ports),
            _ => None,
        }
    }

    fn read(&self, link_type: u16, bytes: &[u8], wire_len: u32, class: Class) -> Result<Option<Class>, Malformed> {
        self.0.iter().try_fold(Some(class), |class, one| match class {
            Some(class) => one.read(link_type, bytes, wire_len, class),
            None => Ok(None),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::chain::params;

    fn selector(kind: &'static Kind, given: &[(&str, &str)]) -> Selection {
        Selection::Filter(kind, params(kind, given))
    }

    #[test]
    fn what_decides_says_what_the_expression_says_of_plain_packets() {
        let compiler = libpcap::Lazy::new();
        let (host, vlan) =
            (selector(&filters::host::KIND, &[("address", "10.0.0.1")]), selector(&filters::vlan::KIND, &[]));
        let port = selector(&filters::port::KIND, &[("port", "80")]);
        let not = |part: Selection| Selection::Not(Box::new(part));
        let rows = [
            not(Selection::Any(vec![host.clone(), vlan.clone()])),
            Selection::All(vec![host.clone(), not(port.clone())]),
            Selection::Any(vec![not(host), Selection::All(vec![vlan, port])]),
        ];
        let frames = testkit::frames::real_and_damaged(200, &mut testkit::random::Random(9));
        for selection in rows {
            let expression = selection.expression(&compiler, ETHERNET).unwrap();
            let decider = selection.decider(&compiler, ETHERNET).unwrap().expect("typed selectors are in it");
            let [surely, unsure] = [program::Passes::Surely, program::Passes::Unsure]
                .map(|passes| Interpreter::new(&expression.program(passes).unwrap()));
            let mut told = 0;
            for frame in &frames {
                let wire = frame.len() as u32;
                let passes = decider.read(ETHERNET, frame, wire, Class(7)).unwrap();
                assert!(matches!(passes, None | Some(Class(7))), "a choice keeps the class");
                if unsure.run(frame, wire) == 0 {
                    assert_eq!(passes.is_some(), surely.run(frame, wire) != 0, "{selection:?} of {frame:02x?}");
                    told += 1;
                }
            }
            assert!(told * 2 > frames.len());
        }
    }

    #[test]
    fn the_last_selector_that_sets_a_class_sets_it() {
        let make = |selection: &Selection| selection.decider(&libpcap::Lazy::new(), ETHERNET).unwrap().unwrap();
        let (ip, port) = (selector(&filters::ip::KIND, &[]), selector(&filters::port::KIND, &[]));
        let frame = testkit::packets::udp(testkit::packets::CLIENT, (testkit::packets::SERVER.0, 53), b"x");
        let class = |selections: &[&Selection]| {
            let all = OneByOne(selections.iter().map(|one| make(one)).collect());
            all.read(ETHERNET, &frame, frame.len() as u32, Class(0)).unwrap()
        };
        let ports = u32::from(testkit::packets::CLIENT.1) << 16 | 53;
        assert_eq!(class(&[&ip, &port]), Some(Class(ports)));
        assert_eq!(class(&[&port, &ip]), Some(Class(17)));
        assert_eq!(class(&[&port, &Selection::Not(Box::new(ip.clone()))]), None);
        // Ports alone decide for one selector only.
        assert_eq!(OneByOne(vec![make(&port)]).by_ports(ports), Some(Some(Class(ports))));
        assert_eq!(OneByOne(vec![make(&port), make(&ip)]).by_ports(ports), None);
    }
}
