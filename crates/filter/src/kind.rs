//! A filter's static description. Each filter's file has one `pub static KIND`.
//!
//! The control plane reads it to check, complete and place a request. Help, manual and completion are made from it, and
//! its examples run as tests. What a filter *does* is in [`run`](crate::run).

use crate::device::{Choice, Decides, DeviceAccess};
use crate::env::Env;
use crate::param::{Param, ParamError, Params};
use crate::record::Schema;
use crate::run::{Instance, SessionKey};
use crate::types::{Type, Types};
use crate::wanted::Wanted;
use program::cbpf::Instruction;
use program::{Compile, Predicate};
use std::path::PathBuf;

/// The blocks that a filter gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gives {
    /// The blocks that came in, perhaps fewer and perhaps changed: the filter works in place on its batch.
    Same,
    /// New blocks of this type.
    Only(Type),
    /// New blocks of the type that this parameter names.
    Named(&'static str),
    /// No blocks: a sink.
    Nothing,
}

/// How a filter treats the class of blocks. For a filter in place this holds for frames and packets only. The class of
/// a stream is its number, which every filter in place keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClassUse {
    /// Keeps the class.
    Keeps,
    /// Sets it to one number; the text describes the number. A selector `|S` accepts the class itself.
    Sets(&'static str),
    /// Sets it to two 16-bit halves; the text describes them. `|S` accepts a class if either half is in S, and `|!S`
    /// accepts exactly the others.
    SetsHalves(&'static str),
}

/// A set of parts of a block or of the world that a filter can read or change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parts(u8);

impl Parts {
    /// Nothing.
    pub const NONE: Parts = Parts(0);
    /// The bytes of blocks.
    pub const DATA: Parts = Parts(1);
    /// Descriptors: place, lengths, time, flags and class of blocks.
    pub const METADATA: Parts = Parts(2);
    /// Facts of streams.
    pub const STREAMS: Parts = Parts(4);
    /// Things that other programs see as well: files, devices, standard output.
    pub const SHARED: Parts = Parts(8);

    /// The union of both sets.
    #[must_use]
    pub const fn with(self, other: Parts) -> Parts {
        Parts(self.0 | other.0)
    }

    /// Whether all of `other` are in the set.
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

/// How a filter keeps state, and so how it may run in parallel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// No state: any copy may see any block.
    Stateless,
    /// A state for each session: the engine keeps it, and hands it over with the session's blocks.
    Session(SessionKey),
    /// One state: one copy sees every block, in order.
    Serial,
}

/// A set of kinds of spaces in which a filter may run.
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
    /// Another host. No such space exists yet.
    pub const REMOTE: Spaces = Spaces(16);
    /// All processes without capabilities and without policies for other users; they may parse payload.
    pub const UNPRIVILEGED: Spaces = Spaces(1 | 8 | 16);

    /// The union of both sets.
    #[must_use]
    pub const fn with(self, other: Spaces) -> Spaces {
        Spaces(self.0 | other.0)
    }

    /// Whether any of `other` is in the set.
    pub const fn has(self, other: Spaces) -> bool {
        self.0 & other.0 != 0
    }
}

impl std::fmt::Display for Spaces {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // In the order in which plans show them.
        let names =
            [(Spaces::KERNEL, "kernel"), (Spaces::DAEMON, "daemon"), (Spaces::PARSER, "parser"), (Spaces::APP, "app")];
        let names: Vec<_> = names.iter().filter(|(space, _)| self.has(*space)).map(|(_, name)| *name).collect();
        f.write_str(&names.join(", "))
    }
}

/// A request on the bundled captures with its exact output: shown in the manual, and run as a test.
#[derive(Clone, Copy, Debug)]
pub struct Example {
    /// The request; its files are bundled captures.
    pub request: &'static str,
    /// The text on standard output.
    pub output: &'static str,
}

/// Makes a selector's filter program for frames of a link type. The error says why there is none.
pub type ToProgram = fn(&Params, &dyn Compile, u16) -> Result<Vec<Instruction>, String>;

/// The form that a filter has in spaces that run only programs.
#[derive(Clone, Copy, Debug)]
pub enum Lower {
    /// A selector that is a filter program.
    Program(ToProgram),
    /// Passes the first of each `n` packets; the function gives `n`. The error says why it cannot run there.
    OneIn(fn(&Params) -> Result<u32, String>),
    /// Gives numbers of packets and bytes, and no packets: `count`.
    Counts,
    /// A selector whose [`Kind::pre_filter`] holds for exactly the packets that it passes. The program cannot decide
    /// about all packets; the reader decides with this about those that the program lets through.
    Selects(fn(&Params) -> Result<Box<dyn Decides>, ParamError>),
    /// A sink that sends frames by a device; the function gives its name. Frames straight from another device go there
    /// without leaving the kernel. The error says why they cannot.
    Forwards(fn(&Params) -> Result<String, String>),
}

/// The packets that a filter can want. `None`: they cannot be described. Does not check parameters: making an instance
/// reports wrong ones.
pub type PreFilter = fn(&Params) -> Option<Predicate>;

/// The packets that a filter turns into others: any that satisfies one of these. `None`: they cannot be described.
pub type Opens = fn(&Params) -> Option<Vec<Predicate>>;

/// Completes parameters; see [`Kind::complete`].
pub type Complete = fn(&mut Params) -> Result<(), ParamError>;

/// Checks parameters that name fields against the schemas of the records that may come; an empty list: the schemas are
/// not known. Gives the schemas of the filter's own records; an empty list: it hands on the records that came.
pub type Records = fn(&Params, &[&'static Schema]) -> Result<Vec<&'static Schema>, ParamError>;

/// The names of the fields that a filter with these parameters reads of records.
pub type ReadsFields = fn(&Params) -> Vec<String>;

/// Makes an instance from checked parameters.
pub type Make = fn(&Params, &Env) -> Result<Instance, ParamError>;

/// A filter's static description.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// The name in requests, which is the stem of its file.
    pub name: &'static str,
    /// One line: the effect on blocks.
    pub summary: &'static str,
    /// More for the manual, in full sentences; may be empty.
    pub help: &'static str,
    /// Its names in other programs; a request that uses one is told the right name.
    pub also: &'static [&'static str],
    /// A filter that is easily mistaken for this one, and its purpose.
    pub beside: Option<(&'static str, &'static str)>,
    /// Its parameters. The first one, if marked main, needs no key.
    pub params: &'static [Param],
    /// The types that it takes; empty for a source.
    pub takes: Types,
    /// The blocks that it gives.
    pub gives: Gives,
    /// The schema of its records or, with [`Gives::Only`] a message, of the META records in them.
    pub schema: Option<&'static Schema>,
    /// The schema of other records that it may give as well.
    pub other_schema: Option<&'static Schema>,
    /// How it treats classes.
    pub class: ClassUse,
    /// How it keeps state.
    pub mode: Mode,
    /// It keeps state over flows and hosts, so one instance sees all frames.
    pub sees_all: bool,
    /// The parts that it reads: all parts of a block, unless the kind says less.
    pub reads: Parts,
    /// The parts that it changes of blocks it gets. New blocks belong to the filter alone and do not count. Debug
    /// builds check this, and panic when a filter changes more.
    pub writes: Parts,
    /// Passes or rejects blocks and changes none: may stand in `and`, `or`, `not`.
    pub selector: bool,
    /// For input types that it does not take: the chain to insert before it, as request text.
    pub wants: &'static [(Type, &'static str)],
    /// A filter that the planner inserts before this one, unless there is one on the way already. A setting of that
    /// name turns this off.
    pub behind: Option<&'static str>,
    /// It turns some packets into others and passes the rest unchanged. See [`Kind::opens`].
    pub opens: Option<Opens>,
    /// The parameter that holds a boolean expression with `and`, `or`, `not` and parentheses of its own. Selections
    /// over such filters become one filter.
    pub expression: Option<&'static str>,
    /// How it reads a network device. `None`: it reads no device.
    pub device: Option<DeviceAccess>,
    /// Its form for spaces that run only programs: the kernel, or the daemon where that copies. `None`: it has no such
    /// form.
    pub lower: Option<Lower>,
    /// The packets that it can want; the engine may leave out others before it. See [`program::predicate`].
    pub pre_filter: Option<PreFilter>,
    /// Where it may run.
    pub spaces: Spaces,
    /// It gives new blocks, and may reject some of its input; see [`Kind::may_reject`].
    pub rejects: bool,
    /// It gives each block to one of the edges behind it; see [`Marks::branches`](crate::Marks).
    pub splits: bool,
    /// Branches of a splitting filter meet in it. The text is the flag that has it restore their order.
    pub joins: Option<&'static str>,
    /// It reads payload.
    pub parses: bool,
    /// The fields that it reads of records; see [`Kind::reads_fields`](Kind::reads_fields()).
    pub reads_fields: Option<ReadsFields>,
    /// Its records have fields of those that come; see [`Kind::keeps_names`](Kind::keeps_names()).
    pub keeps_names: bool,
    /// It is a sink that can go on when other filters lead to it.
    pub restarts: bool,
    /// Requests that begin alike may share one instance. Not for filters that touch the world.
    pub shared: bool,
    /// The time that a block takes with these parameters, in ns. `None`: the filter is cheap.
    pub cost: Option<fn(&Params) -> u64>,
    /// A note for `explain` about a filter with these parameters. `None`: it has no note.
    pub note: Option<fn(&Params) -> Option<String>>,
    /// Checks the records that come; see [`Records`].
    pub records: Option<Records>,
    /// Examples.
    pub examples: &'static [Example],
    /// The kind that this name means at the beginning of a chain; it has the same parameters.
    pub first: Option<&'static Kind>,
    /// For a source: the name of the sink that sends its frames back. That sink ends paths that end with frames, and
    /// gets the source's parameters if it has none. See [`Kind::returns`](Kind::returns()).
    pub returns: Option<&'static str>,
    /// Its rejected blocks go on: if no filter takes them, they end as a path does.
    pub passes_rejects: bool,
    /// Completes parameters that only the outside world knows, before types are checked.
    pub complete: Option<Complete>,
    /// The parameter that may name the only type of blocks that may come. `None`: it takes several types at once.
    pub one_type: Option<&'static str>,
    /// The file at which it meets other requests. A source reads there, any other filter writes.
    pub meets: Option<fn(&Params) -> Option<PathBuf>>,
    /// An instance that was made and not run leaves nothing behind, so `check` makes one to find what it lacks.
    pub leaves_nothing: bool,
    /// Makes an instance.
    pub make: Make,
}

impl Kind {
    /// A stateless filter that takes any blocks and hands them on. It may run in any process without rights, and can be
    /// shared. The methods below change this. `const`, so that a kind can be a `static`.
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
            sees_all: false,
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
            reads_fields: None,
            keeps_names: false,
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
            leaves_nothing: false,
            make,
        }
    }

    /// Sets more text for the manual.
    pub const fn help(mut self, help: &'static str) -> Kind {
        self.help = help;
        self
    }

    /// Sets its names in other programs.
    pub const fn also(mut self, names: &'static [&'static str]) -> Kind {
        self.also = names;
        self
    }

    /// Names a filter that is mistaken for this one; see [`Kind::beside`].
    pub const fn beside(mut self, name: &'static str, does: &'static str) -> Kind {
        self.beside = Some((name, does));
        self
    }

    /// Sets its parameters.
    pub const fn params(mut self, params: &'static [Param]) -> Kind {
        self.params = params;
        self
    }

    /// Sets the types that it takes.
    pub const fn takes(mut self, types: &[Type]) -> Kind {
        self.takes = Types::of(types);
        self
    }

    /// Makes it a source: it takes no blocks.
    pub const fn source(mut self, gives: Type) -> Kind {
        self.takes = Types::NONE;
        self.gives = Gives::Only(gives);
        self.mode = Mode::Serial;
        self
    }

    /// Makes it read a network device. It runs where such devices are opened.
    pub const fn device(mut self, access: DeviceAccess) -> Kind {
        self.device = Some(access);
        self.spaces = match access {
            DeviceAccess::Shared(_) => Spaces::DAEMON.with(Spaces::KERNEL),
            DeviceAccess::Exclusive(_) => Spaces::APP.with(Spaces::KERNEL),
            DeviceAccess::Made => Spaces::APP,
        };
        self.source(Type::Frame)
    }

    /// Makes it give new blocks of this type.
    pub const fn gives(mut self, one: Type) -> Kind {
        self.gives = Gives::Only(one);
        self
    }

    /// Makes it give records of this schema.
    pub const fn gives_records(mut self, schema: &'static Schema) -> Kind {
        self.gives = Gives::Only(Type::Record);
        self.schema = Some(schema);
        self
    }

    /// Makes it give records of this schema besides its own.
    pub const fn gives_also(mut self, schema: &'static Schema) -> Kind {
        self.other_schema = Some(schema);
        self
    }

    /// Makes it give messages, each with a META record of this schema.
    pub const fn gives_messages(mut self, schema: &'static Schema) -> Kind {
        self.gives = Gives::Only(Type::Message);
        self.schema = Some(schema);
        self
    }

    /// Makes it a sink, which touches the world (files, the terminal). Runs in the application only, and is never
    /// shared.
    pub const fn sink(mut self) -> Kind {
        self.gives = Gives::Nothing;
        self.mode = Mode::Serial;
        self.writes = self.writes.with(Parts::SHARED);
        self.spaces = Spaces::APP;
        self.shared = false;
        self
    }

    /// Sets the parts that it reads, and those that it changes of blocks it gets. Classes that it sets are included
    /// anyway.
    pub const fn touches(mut self, reads: Parts, writes: Parts) -> Kind {
        self.reads = reads;
        self.writes = self.writes.with(writes);
        self
    }

    /// Of records it reads only these fields, and of messages only these fields of the META records. Blocks of bodies it
    /// leaves out, or passes on unread. A filter that gives records or messages learns by
    /// [`Context::wanted`](crate::Context::wanted) what all filters behind it read.
    pub const fn reads_fields(mut self, names: ReadsFields) -> Kind {
        self.reads_fields = Some(names);
        self
    }

    /// Its records have fields of those that come, by the same names: a field that is asked of them is asked of those.
    pub const fn keeps_names(mut self) -> Kind {
        self.keeps_names = true;
        self
    }

    /// What it reads of records and messages, with these parameters. Without a statement: nothing if it passes blocks on
    /// without a look at their bytes, else everything.
    pub fn wants_of_records(&self, params: &Params) -> Wanted {
        let mut wanted = Wanted::none();
        match self.reads_fields {
            Some(names) => wanted.add(&Wanted::fields(names(params))),
            None if self.gives == Gives::Same && !self.reads.has(Parts::DATA) => {}
            None => wanted.add(Wanted::ALL),
        }
        wanted
    }

    /// Whether it gives the records that came, all or some of them, perhaps in another order.
    pub fn hands_on(&self, params: &Params) -> bool {
        let names_records = || self.records.is_some() && self.schema.is_none() && params.records().is_none();
        self.gives == Gives::Same || (!self.is_sink() && names_records())
    }

    /// Makes it a selector: it passes or rejects blocks and changes none.
    pub const fn selects(mut self) -> Kind {
        self.selector = true;
        self
    }

    /// Sets the parameter that holds a boolean expression; see [`Kind::expression`].
    pub const fn expression(mut self, key: &'static str) -> Kind {
        self.expression = Some(key);
        self
    }

    /// Sets its form for spaces that run only programs; see [`Kind::lower`].
    pub const fn lowers(mut self, lower: Lower) -> Kind {
        self.lower = Some(lower);
        self.spaces = self.spaces.with(Spaces::KERNEL).with(Spaces::DAEMON);
        self
    }

    /// Sets the packets that it can want. Leaving out others must not change its blocks. See
    /// [`Kind::pre_filter`].
    pub const fn pre_filter(mut self, pre_filter: PreFilter) -> Kind {
        self.pre_filter = Some(pre_filter);
        self
    }

    /// Sets how it treats classes.
    pub const fn class(mut self, class: ClassUse) -> Kind {
        self.class = class;
        if !matches!(class, ClassUse::Keeps) {
            self.writes = self.writes.with(Parts::METADATA);
        }
        self
    }

    /// Sets how it keeps state.
    pub const fn mode(mut self, mode: Mode) -> Kind {
        self.mode = mode;
        self
    }

    /// Makes it one instance that sees all frames: its results depend on frames of several flows.
    pub const fn sees_all(mut self) -> Kind {
        self.mode = Mode::Serial;
        self.sees_all = true;
        self
    }

    /// Sets the chains to insert for types that it does not take.
    pub const fn wants(mut self, wants: &'static [(Type, &'static str)]) -> Kind {
        self.wants = wants;
        self
    }

    /// Sets the filter to insert before it.
    pub const fn behind(mut self, name: &'static str) -> Kind {
        self.behind = Some(name);
        self
    }

    /// Sets the packets that it turns into others. Filters behind it may want the new packets, whatever the old ones
    /// were.
    pub const fn opens(mut self, opens: Opens) -> Kind {
        self.opens = Some(opens);
        self
    }

    /// Makes it a sink that goes on when the filters before it are replaced:
    /// [`Filter::restart`](crate::Filter::restart).
    pub const fn restarts(mut self) -> Kind {
        self.restarts = true;
        self
    }

    /// Makes it give new blocks and reject unsuitable input ([`Context::reject`](crate::Context::reject)).
    pub const fn rejects(mut self) -> Kind {
        self.rejects = true;
        self
    }

    /// Makes it give each block to one of the branches behind it. Two equal ones are never merged.
    pub const fn splits(mut self) -> Kind {
        self.splits = true;
        self.shared = false;
        self
    }

    /// Makes branches of a splitting filter meet in it; this flag has it restore their order.
    pub const fn joins(mut self, key: &'static str) -> Kind {
        self.joins = Some(key);
        self.shared = false;
        self
    }

    /// Notes that it reads payload.
    pub const fn parses_payload(mut self) -> Kind {
        self.parses = true;
        self
    }

    /// Sets the spaces in which it may run.
    pub const fn runs_in(mut self, spaces: Spaces) -> Kind {
        self.spaces = spaces;
        self
    }

    /// Notes that it is costly: the function gives the ns of a block with these parameters.
    pub const fn costs(mut self, cost: fn(&Params) -> u64) -> Kind {
        self.cost = Some(cost);
        self
    }

    /// Notes that its parameters name fields of the records that come.
    pub const fn names_fields(mut self, records: Records) -> Kind {
        self.records = Some(records);
        self
    }

    /// Sets the note that `explain` gives for a filter with these parameters.
    pub const fn notes(mut self, note: fn(&Params) -> Option<String>) -> Kind {
        self.note = Some(note);
        self
    }

    /// Sets its examples: requests on the bundled captures with their output.
    pub const fn examples(mut self, examples: &'static [Example]) -> Kind {
        self.examples = examples;
        self
    }

    /// Sets the source that its name means at the beginning of a chain.
    pub const fn first(mut self, source: &'static Kind) -> Kind {
        self.first = Some(source);
        self
    }

    /// For a source: sets the sink that sends its frames back.
    pub const fn returns(mut self, sink: &'static str) -> Kind {
        self.returns = Some(sink);
        self
    }

    /// Makes it give new blocks, and hand on its rejected blocks as passed; see
    /// [`Kind::passes_rejects`](Kind::passes_rejects()).
    pub const fn passes_rejects(mut self) -> Kind {
        self.rejects = true;
        self.passes_rejects = true;
        self
    }

    /// Lets `check` make an instance; see [`Kind::leaves_nothing`](field@Kind::leaves_nothing).
    pub const fn leaves_nothing(mut self) -> Kind {
        self.leaves_nothing = true;
        self
    }

    /// Sets how the outside world completes parameters; see [`Kind::complete`].
    pub const fn completes(mut self, complete: Complete) -> Kind {
        self.complete = Some(complete);
        self
    }

    /// Lets only one type of blocks come to it at a time; see [`Kind::one_type`].
    pub const fn one_type(mut self, key: &'static str) -> Kind {
        self.one_type = Some(key);
        self
    }

    /// Sets where it meets other requests; see [`Kind::meets`].
    pub const fn meets(mut self, place: fn(&Params) -> Option<PathBuf>) -> Kind {
        self.meets = Some(place);
        self
    }

    /// Makes it give new blocks of the type that this parameter names.
    pub const fn gives_named(mut self, key: &'static str) -> Kind {
        self.gives = Gives::Named(key);
        self
    }

    /// The kind that this name means at the beginning of a chain (`begins`), or elsewhere.
    pub fn at(&'static self, begins: bool) -> &'static Kind {
        self.first.filter(|_| begins).unwrap_or(self)
    }

    /// Whether a chain may begin with it.
    pub fn may_begin(&self) -> bool {
        self.is_source() || self.first.is_some()
    }

    /// Whether it is a source.
    pub const fn is_source(&self) -> bool {
        self.takes.is_none()
    }

    /// Whether this source takes packets away from the host.
    pub fn takes_away(&self, params: &Params) -> bool {
        match self.device {
            Some(DeviceAccess::Shared(shared)) => {
                (shared.asked)(params).is_ok_and(|(asked, _)| asked.mode == crate::capture_request::Mode::Consume)
            }
            Some(DeviceAccess::Exclusive(exclusive)) => matches!(exclusive.choice, Choice::Xdp { .. }),
            Some(DeviceAccess::Made) | None => false,
        }
    }

    /// Whether it is a sink.
    pub const fn is_sink(&self) -> bool {
        matches!(self.gives, Gives::Nothing)
    }

    /// Whether it may reject blocks, so that `|!` can follow it. Every filter in place may, except those that split or join.
    pub fn may_reject(&self) -> bool {
        self.rejects || (!self.is_source() && self.gives == Gives::Same && !self.splits && self.joins.is_none())
    }

    /// The parameter that needs no key.
    pub fn main_param(&self) -> Option<&'static Param> {
        self.params.iter().find(|param| param.main)
    }

    /// The types that it gives for this input, with these parameters.
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
