//! What a filter declares: its static description. One `pub static KIND` stands in every filter's file.
//!
//! The control plane reads it to check, complete and place a request; help, manual and completion are made from it;
//! its examples are run as tests. What a filter *does* is in [`run`](crate::run).

use crate::device::{Choice, Decides, DeviceAccess};
use crate::env::Env;
use crate::param::{Param, ParamError, Params};
use crate::record::Schema;
use crate::run::{Instance, SessionKey};
use buffer::control::codec::{In, Out, Wire};
use program::cbpf::Instruction;
use program::{Compile, Predicate};
use std::path::PathBuf;

/// What travels on an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Type {
    /// A frame of the link layer; its link type stands with its view.
    Frame,
    /// A network-layer packet without its link layer.
    Packet,
    /// A piece of an ordered byte stream, class = stream.
    Bytes,
    /// A piece of a message: a run of blocks of one class from FIRST to LAST.
    Message,
    /// One row of a schema.
    Record,
}

impl Type {
    /// All types, in the order help prints them.
    pub const ALL: [Type; 5] = [Type::Frame, Type::Packet, Type::Bytes, Type::Message, Type::Record];

    /// The words people see, in this order.
    pub const NAMES: [&'static str; 5] = ["frame", "packet", "bytes", "message", "record"];

    /// The type that a word means.
    pub fn of_name(name: &str) -> Option<Type> {
        Type::ALL.into_iter().find(|one| one.name() == name)
    }

    /// The word people see.
    pub const fn name(self) -> &'static str {
        Type::NAMES[self as usize]
    }
}

/// A set of [`Type`]s.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Types(u8);

/// As the names that people know them by, each once and in order: numbers may change.
impl Wire for Types {
    fn put(&self, out: &mut Out) {
        self.iter().map(|one| one.name().to_string()).collect::<Vec<_>>().put(out);
    }

    fn get(fields: &mut In<'_>) -> Option<Types> {
        let names = Vec::<String>::get(fields)?;
        let types = Types::of(&names.iter().map(|name| Type::of_name(name)).collect::<Option<Vec<_>>>()?);
        types.iter().map(Type::name).eq(names.iter().map(String::as_str)).then_some(types)
    }
}

impl Types {
    /// None: what a source takes.
    pub const NONE: Types = Types(0);
    /// Every type.
    pub const ANY: Types = Types(0b1_1111);

    /// The set of these types.
    pub const fn of(types: &[Type]) -> Types {
        let mut set = 0;
        let mut index = 0;
        while index < types.len() {
            set |= 1 << types[index] as u8;
            index += 1;
        }
        Types(set)
    }

    /// Is this one of them?
    pub const fn has(self, one: Type) -> bool {
        self.0 & (1 << one as u8) != 0
    }

    /// Is every type of `other` one of them?
    pub const fn has_all(self, other: Types) -> bool {
        self.0 & other.0 == other.0
    }

    /// Is it the empty set?
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }

    /// These and those.
    #[must_use]
    pub const fn with(self, other: Types) -> Types {
        Types(self.0 | other.0)
    }

    /// These without those.
    #[must_use]
    pub const fn without(self, other: Types) -> Types {
        Types(self.0 & !other.0)
    }

    /// The types in it.
    pub fn iter(self) -> impl Iterator<Item = Type> {
        Type::ALL.into_iter().filter(move |one| self.has(*one))
    }
}

impl std::fmt::Display for Types {
    /// "frame", "bytes or message", "anything", "nothing".
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if *self == Types::ANY {
            return f.write_str("anything");
        }
        let names: Vec<_> = self.iter().map(Type::name).collect();
        match names.split_last() {
            None => f.write_str("nothing"),
            Some((last, [])) => f.write_str(last),
            Some((last, rest)) => write!(f, "{} or {last}", rest.join(", ")),
        }
    }
}

/// What leaves a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gives {
    /// The blocks that came, fewer perhaps, changed perhaps: the filter works in place on its batch.
    Same,
    /// New blocks of this type.
    Only(Type),
    /// New blocks of the type that this parameter names.
    Named(&'static str),
    /// Nothing: a sink.
    Nothing,
}

/// What a filter does to the class of blocks. Of a filter that works in place this holds for frames and packets only: the
/// class of a stream names the stream, and every filter in place keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClassUse {
    /// Leaves it as the last setter made it.
    Keeps,
    /// Sets it to one number; the text says what the number is. A selector `|S` accepts the class itself.
    Sets(&'static str),
    /// Sets it to two 16-bit halves; the text says what they are. `|S` accepts if either half is in S, `|!S` is
    /// exactly the complement.
    SetsHalves(&'static str),
}

/// Parts of what a filter can look at or change, as a set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parts(u8);

impl Parts {
    /// Nothing.
    pub const NONE: Parts = Parts(0);
    /// The bytes of blocks.
    pub const DATA: Parts = Parts(1);
    /// What descriptors say of blocks: where they lie, their lengths, times, flags and classes.
    pub const METADATA: Parts = Parts(2);
    /// Facts of streams.
    pub const STREAMS: Parts = Parts(4);
    /// What others see as well: files, devices, standard output.
    pub const SHARED: Parts = Parts(8);

    /// These and those.
    #[must_use]
    pub const fn with(self, other: Parts) -> Parts {
        Parts(self.0 | other.0)
    }

    /// Are all of `other` among them?
    pub const fn has(self, other: Parts) -> bool {
        self.0 & other.0 == other.0
    }
}

impl std::fmt::Display for Parts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names = [
            (Parts::DATA, "bytes"),
            (Parts::METADATA, "what is known of blocks"),
            (Parts::STREAMS, "facts of streams"),
            (Parts::SHARED, "what others see as well"),
        ];
        let names: Vec<_> = names.iter().filter(|(part, _)| self.has(*part)).map(|(_, name)| *name).collect();
        f.write_str(if names.is_empty() { "nothing" } else { "" })?;
        f.write_str(&names.join(", "))
    }
}

/// How a filter keeps state, which is also how it may run in parallel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// None: any block may be looked at by any copy of it.
    Stateless,
    /// By class: the engine keeps a state for each session and hands it over with its blocks.
    Session(SessionKey),
    /// Its own: one copy sees every block, in order.
    Serial,
}

/// Kinds of spaces, as a set: where a filter may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spaces(u8);

impl Spaces {
    /// The application's process.
    pub const APP: Spaces = Spaces(1);
    /// The privileged daemon: drivers, programs and copying.
    pub const DAEMON: Spaces = Spaces(2);
    /// The kernel.
    pub const KERNEL: Spaces = Spaces(4);
    /// An unprivileged process that parses for one trust group.
    pub const PARSER: Spaces = Spaces(8);
    /// Another host. There is no such space as yet.
    pub const REMOTE: Spaces = Spaces(16);
    /// Every process that holds no capabilities and no policy for others: there payload may be parsed.
    pub const UNPRIVILEGED: Spaces = Spaces(1 | 8 | 16);

    /// These and those.
    #[must_use]
    pub const fn with(self, other: Spaces) -> Spaces {
        Spaces(self.0 | other.0)
    }

    /// Is any of `other` one of them?
    pub const fn has(self, other: Spaces) -> bool {
        self.0 & other.0 != 0
    }
}

impl std::fmt::Display for Spaces {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // As people see them in plans.
        let names =
            [(Spaces::KERNEL, "kernel"), (Spaces::DAEMON, "daemon"), (Spaces::PARSER, "parser"), (Spaces::APP, "app")];
        let names: Vec<_> = names.iter().filter(|(space, _)| self.has(*space)).map(|(_, name)| *name).collect();
        f.write_str(&names.join(", "))
    }
}

/// A request on the bundled captures and exactly what it prints: shown in the manual, run as a test.
#[derive(Clone, Copy, Debug)]
pub struct Example {
    /// The request; files it names are bundled captures.
    pub request: &'static str,
    /// What it writes to standard output.
    pub output: &'static str,
}

/// What a selector is as a filter program over frames of a link type; else why it is none.
pub type ToProgram = fn(&Params, &dyn Compile, u16) -> Result<Vec<Instruction>, String>;

/// What a filter is where there are only programs.
#[derive(Clone, Copy, Debug)]
pub enum Lower {
    /// A selector that is a filter program.
    Program(ToProgram),
    /// It passes the first of each so many packets; else why it cannot there.
    OneIn(fn(&Params) -> Result<u32, String>),
    /// It gives numbers of packets and bytes, and nothing else of them is wanted: what `count` is.
    Counts,
    /// A selector whose [`Kind::pre_filter`] holds for exactly the packets it passes. The program cannot tell about all packets:
    /// this decides, in the reader, about those it lets through.
    Selects(fn(&Params) -> Result<Box<dyn Decides>, ParamError>),
    /// A sink that sends frames on a device, whose name this is: what comes straight from another device goes there without
    /// leaving the kernel. Else why it cannot there.
    Forwards(fn(&Params) -> Result<String, String>),
}

/// What packets must be for a filter to want them; `None` if that cannot be said. Parameters may be wrong: making an instance
/// says so.
pub type PreFilter = fn(&Params) -> Option<Predicate>;

/// Packets that satisfy any of these are turned into others; `None` if that cannot be said.
pub type Opens = fn(&Params) -> Option<Vec<Predicate>>;

/// Fills in parameters: see [`Kind::complete`].
pub type Complete = fn(&mut Params) -> Result<(), ParamError>;

/// Checks parameters that name fields against the schemas of the records that may come; none: it is not known what comes. Gives
/// the schema of the records that the filter makes of them; none: it gives those that came.
pub type Records = fn(&Params, &[&'static Schema]) -> Result<Option<&'static Schema>, ParamError>;

/// Makes an instance from checked parameters.
pub type Make = fn(&Params, &Env) -> Result<Instance, ParamError>;

/// A filter's static description.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// The name in requests: the stem of its file.
    pub name: &'static str,
    /// One line: what it does to blocks.
    pub summary: &'static str,
    /// More for the manual, in full sentences; may be empty.
    pub help: &'static str,
    /// What people who come from other programs call it: a request that does is told the name.
    pub also: &'static [&'static str],
    /// A filter with a name so alike that requests take one for the other, and what that one does.
    pub beside: Option<(&'static str, &'static str)>,
    /// What it can be told. The first, where it is marked main, needs no key.
    pub params: &'static [Param],
    /// What it takes; nothing makes it a source.
    pub takes: Types,
    /// What it gives.
    pub gives: Gives,
    /// The schema of the records it gives or, with [`Gives::Only`] a message, of the META records in them.
    pub schema: Option<&'static Schema>,
    /// The schema of other records among those that it gives.
    pub other_schema: Option<&'static Schema>,
    /// What it does to classes.
    pub class: ClassUse,
    /// How it keeps state.
    pub mode: Mode,
    /// What it looks at: everything of a block, where its kind does not say less.
    pub reads: Parts,
    /// What it changes of what it gets. What a filter makes anew is nobody else's, and not said here. Debug builds watch it:
    /// a filter that changes more ends in a panic.
    pub writes: Parts,
    /// Changes no block and only passes or rejects: may stand in `and`, `or`, `not`.
    pub selector: bool,
    /// For input types that are not its own: the chain it wants before it, as request text.
    pub wants: &'static [(Type, &'static str)],
    /// A filter that the planner puts in before it, where none of that name stands on the way to it; a setting of that name
    /// leaves it out.
    pub behind: Option<&'static str>,
    /// It turns packets into others, those that satisfy any of these; all else passes as it is. See [`Kind::opens`].
    pub opens: Option<Opens>,
    /// The parameter that holds a boolean expression with `and`, `or`, `not` and parentheses of its own: selections over
    /// such filters become one filter.
    pub expression: Option<&'static str>,
    /// It reads a network device, and how.
    pub device: Option<DeviceAccess>,
    /// It may run where there are only programs: in the kernel, or in the daemon where that copies.
    pub lower: Option<Lower>,
    /// What it cannot want may be left out before it; see [`program::predicate`].
    pub pre_filter: Option<PreFilter>,
    /// Where it may run.
    pub spaces: Spaces,
    /// It gives new blocks, and may reject what comes: see [`Kind::may_reject`].
    pub rejects: bool,
    /// Each block that it passes goes along one of the edges behind it: see [`Marks::branches`](crate::Marks).
    pub splits: bool,
    /// Branches of such a filter meet in it; the flag that has it restore their order.
    pub joins: Option<&'static str>,
    /// It looks into payload.
    pub parses: bool,
    /// It is a sink that can go on where other filters lead to it.
    pub restarts: bool,
    /// Two requests that begin alike may use one instance. Not for what touches the world.
    pub shared: bool,
    /// The time that the filter takes for a block with these parameters, in ns; none for a cheap filter.
    pub cost: Option<fn(&Params) -> u64>,
    /// What `explain` says of a filter with these parameters; none for a filter that hides nothing.
    pub note: Option<fn(&Params) -> Option<String>>,
    /// Looks at the records that come; see [`Records`].
    pub records: Option<Records>,
    /// Examples.
    pub examples: &'static [Example],
    /// The kind that this name means where nothing stands before it; its parameters are the same.
    pub first: Option<&'static Kind>,
    /// The sink of this name takes what the source gives back to where it came from: it ends paths that end with frames, and gets
    /// the source's parameters where it has none. See [`Kind::returns`](Kind::returns()).
    pub returns: Option<&'static str>,
    /// What it rejects goes on: where nothing takes that, it ends as a path does.
    pub passes_rejects: bool,
    /// Fills in parameters that only the outside world knows, before types are looked at.
    pub complete: Option<Complete>,
    /// Blocks of one type only may come to it: one that this parameter says, where it is given.
    pub one_type: Option<&'static str>,
    /// Where it meets other requests: a file that stands for it. A source reads there, anything else writes.
    pub meets: Option<fn(&Params) -> Option<PathBuf>>,
    /// Makes an instance.
    pub make: Make,
}

impl Kind {
    /// A stateless filter that takes anything and gives it on, may run in any process without rights and can be shared: the methods below
    /// say what is different. Const, so that a kind is a `static`.
    pub const fn new(name: &'static str, summary: &'static str, make: Make) -> Kind {
        Kind {
            name,
            summary,
            help: "",
            also: &[],
            beside: None,
            params: &[],
            takes: Types::ANY,
            gives: Gives::Same,
            schema: None,
            other_schema: None,
            class: ClassUse::Keeps,
            mode: Mode::Stateless,
            reads: Parts::DATA.with(Parts::METADATA).with(Parts::STREAMS),
            writes: Parts::NONE,
            selector: false,
            wants: &[],
            behind: None,
            opens: None,
            expression: None,
            device: None,
            lower: None,
            pre_filter: None,
            spaces: Spaces::UNPRIVILEGED,
            rejects: false,
            splits: false,
            joins: None,
            parses: false,
            restarts: false,
            shared: true,
            cost: None,
            note: None,
            records: None,
            examples: &[],
            first: None,
            returns: None,
            passes_rejects: false,
            complete: None,
            one_type: None,
            meets: None,
            make,
        }
    }

    /// More for the manual.
    pub const fn help(mut self, help: &'static str) -> Kind {
        self.help = help;
        self
    }

    /// What people who come from other programs call it.
    pub const fn also(mut self, names: &'static [&'static str]) -> Kind {
        self.also = names;
        self
    }

    /// Requests take it for another filter, which does this: see [`Kind::beside`].
    pub const fn beside(mut self, name: &'static str, does: &'static str) -> Kind {
        self.beside = Some((name, does));
        self
    }

    /// What it can be told.
    pub const fn params(mut self, params: &'static [Param]) -> Kind {
        self.params = params;
        self
    }

    /// What it takes.
    pub const fn takes(mut self, types: &[Type]) -> Kind {
        self.takes = Types::of(types);
        self
    }

    /// It takes nothing: blocks begin here.
    pub const fn source(mut self, gives: Type) -> Kind {
        self.takes = Types::NONE;
        self.gives = Gives::Only(gives);
        self.mode = Mode::Serial;
        self
    }

    /// It is a source that reads a network device. It runs where devices of this sort are opened.
    pub const fn device(mut self, access: DeviceAccess) -> Kind {
        self.device = Some(access);
        self.spaces = match access {
            DeviceAccess::Shared(_) => Spaces::DAEMON.with(Spaces::KERNEL),
            DeviceAccess::Exclusive(_) => Spaces::APP.with(Spaces::KERNEL),
            DeviceAccess::Made => Spaces::APP,
        };
        self.source(Type::Frame)
    }

    /// It gives new blocks of this type.
    pub const fn gives(mut self, one: Type) -> Kind {
        self.gives = Gives::Only(one);
        self
    }

    /// It gives records of this schema.
    pub const fn gives_records(mut self, schema: &'static Schema) -> Kind {
        self.gives = Gives::Only(Type::Record);
        self.schema = Some(schema);
        self
    }

    /// It gives records of this schema beside those of its own.
    pub const fn gives_also(mut self, schema: &'static Schema) -> Kind {
        self.other_schema = Some(schema);
        self
    }

    /// It gives messages, each with a META record of this schema.
    pub const fn gives_messages(mut self, schema: &'static Schema) -> Kind {
        self.gives = Gives::Only(Type::Message);
        self.schema = Some(schema);
        self
    }

    /// It gives nothing and touches the world: files, the terminal. Runs in the application only, never shared.
    pub const fn sink(mut self) -> Kind {
        self.gives = Gives::Nothing;
        self.mode = Mode::Serial;
        self.writes = self.writes.with(Parts::SHARED);
        self.spaces = Spaces::APP;
        self.shared = false;
        self
    }

    /// What it looks at, and what it changes of what it gets; setting classes is among that already.
    pub const fn touches(mut self, reads: Parts, writes: Parts) -> Kind {
        self.reads = reads;
        self.writes = self.writes.with(writes);
        self
    }

    /// It passes or rejects blocks and changes none.
    pub const fn selects(mut self) -> Kind {
        self.selector = true;
        self
    }

    /// This parameter holds a boolean expression; see [`Kind::expression`].
    pub const fn expression(mut self, key: &'static str) -> Kind {
        self.expression = Some(key);
        self
    }

    /// It may run where there are only programs, too; see [`Kind::lower`].
    pub const fn lowers(mut self, lower: Lower) -> Kind {
        self.lower = Some(lower);
        self.spaces = self.spaces.with(Spaces::KERNEL).with(Spaces::DAEMON);
        self
    }

    /// What it cannot want may be left where it is: nothing it gives becomes another for that. See [`Kind::pre_filter`].
    pub const fn pre_filter(mut self, pre_filter: PreFilter) -> Kind {
        self.pre_filter = Some(pre_filter);
        self
    }

    /// What it does to classes.
    pub const fn class(mut self, class: ClassUse) -> Kind {
        self.class = class;
        if !matches!(class, ClassUse::Keeps) {
            self.writes = self.writes.with(Parts::METADATA);
        }
        self
    }

    /// How it keeps state.
    pub const fn mode(mut self, mode: Mode) -> Kind {
        self.mode = mode;
        self
    }

    /// The chain it wants for an input type that is not its own.
    pub const fn wants(mut self, wants: &'static [(Type, &'static str)]) -> Kind {
        self.wants = wants;
        self
    }

    /// The filter that is put in before it.
    pub const fn behind(mut self, name: &'static str) -> Kind {
        self.behind = Some(name);
        self
    }

    /// What it turns into other packets: filters behind it may want those, whatever they were before.
    pub const fn opens(mut self, opens: Opens) -> Kind {
        self.opens = Some(opens);
        self
    }

    /// A sink whose output goes on where the filters that lead to it are replaced by others:
    /// [`Filter::restart`](crate::Filter::restart).
    pub const fn restarts(mut self) -> Kind {
        self.restarts = true;
        self
    }

    /// It gives new blocks, and rejects what is not for it ([`Context::reject`](crate::Context::reject)).
    pub const fn rejects(mut self) -> Kind {
        self.rejects = true;
        self
    }

    /// It gives each block to one of the branches behind it. Two that look alike are not one.
    pub const fn splits(mut self) -> Kind {
        self.splits = true;
        self.shared = false;
        self
    }

    /// Branches of a filter that splits meet in it; this flag has it restore their order.
    pub const fn joins(mut self, key: &'static str) -> Kind {
        self.joins = Some(key);
        self.shared = false;
        self
    }

    /// It looks into payload.
    pub const fn parses_payload(mut self) -> Kind {
        self.parses = true;
        self
    }

    /// Where it may run.
    pub const fn runs_in(mut self, spaces: Spaces) -> Kind {
        self.spaces = spaces;
        self
    }

    /// The filter is costly: the function says how many ns a block takes with these parameters.
    pub const fn costs(mut self, cost: fn(&Params) -> u64) -> Kind {
        self.cost = Some(cost);
        self
    }

    /// Its parameters name fields of the records that come.
    pub const fn names_fields(mut self, records: Records) -> Kind {
        self.records = Some(records);
        self
    }

    /// `explain` says this of a filter with these parameters.
    pub const fn notes(mut self, note: fn(&Params) -> Option<String>) -> Kind {
        self.note = Some(note);
        self
    }

    /// Requests on the bundled captures and what they print.
    pub const fn examples(mut self, examples: &'static [Example]) -> Kind {
        self.examples = examples;
        self
    }

    /// At the beginning of a chain the name means this source.
    pub const fn first(mut self, source: &'static Kind) -> Kind {
        self.first = Some(source);
        self
    }

    /// A source whose frames go back by the sink of this name.
    pub const fn returns(mut self, sink: &'static str) -> Kind {
        self.returns = Some(sink);
        self
    }

    /// It gives new blocks, and rejects what passes: see [`Kind::passes_rejects`](Kind::passes_rejects()).
    pub const fn passes_rejects(mut self) -> Kind {
        self.rejects = true;
        self.passes_rejects = true;
        self
    }

    /// The outside world knows some parameters. See [`Kind::complete`].
    pub const fn completes(mut self, complete: Complete) -> Kind {
        self.complete = Some(complete);
        self
    }

    /// Blocks of one type only may come to it. See [`Kind::one_type`].
    pub const fn one_type(mut self, key: &'static str) -> Kind {
        self.one_type = Some(key);
        self
    }

    /// It reads or writes what other requests write or read. See [`Kind::meets`].
    pub const fn meets(mut self, place: fn(&Params) -> Option<PathBuf>) -> Kind {
        self.meets = Some(place);
        self
    }

    /// It gives new blocks of the type that this parameter names.
    pub const fn gives_named(mut self, key: &'static str) -> Kind {
        self.gives = Gives::Named(key);
        self
    }

    /// What this name means where nothing stands before it, or where something does.
    pub fn at(&'static self, begins: bool) -> &'static Kind {
        self.first.filter(|_| begins).unwrap_or(self)
    }

    /// May a chain begin with it?
    pub fn may_begin(&self) -> bool {
        self.is_source() || self.first.is_some()
    }

    /// Is it where blocks begin?
    pub const fn is_source(&self) -> bool {
        self.takes.is_none()
    }

    /// Does the host not see what this source gives?
    pub fn takes_away(&self, params: &Params) -> bool {
        match self.device {
            Some(DeviceAccess::Shared(shared)) => {
                (shared.asked)(params).is_ok_and(|(asked, _)| asked.mode == crate::capture_request::Mode::Consume)
            }
            Some(DeviceAccess::Exclusive(exclusive)) => matches!(exclusive.choice, Choice::Xdp { .. }),
            Some(DeviceAccess::Made) | None => false,
        }
    }

    /// Is it where blocks end?
    pub const fn is_sink(&self) -> bool {
        matches!(self.gives, Gives::Nothing)
    }

    /// May it reject blocks, so that somebody can want those? Every filter in place may.
    pub fn may_reject(&self) -> bool {
        self.rejects || (!self.is_source() && self.gives == Gives::Same && !self.splits && self.joins.is_none())
    }

    /// The parameter that needs no key.
    pub fn main_param(&self) -> Option<&'static Param> {
        self.params.iter().find(|param| param.main)
    }

    /// What it gives for this input, with these parameters.
    pub fn output(&self, input: Types, params: &Params) -> Types {
        match self.gives {
            Gives::Same => input,
            Gives::Only(one) => Types::of(&[one]),
            Gives::Named(key) => params.text(key).and_then(Type::of_name).map_or(Types::NONE, |one| Types::of(&[one])),
            Gives::Nothing => Types::NONE,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_read_as_people_say_them() {
        let rows: [(&[Type], &str); 4] = [
            (&[], "nothing"),
            (&[Type::Frame], "frame"),
            (&[Type::Message, Type::Bytes], "bytes or message"),
            (&Type::ALL, "anything"),
        ];
        for (types, text) in rows {
            assert_eq!(Types::of(types).to_string(), text);
        }
    }
}
