//! The contract between filters and the engine: what a filter declares and what it may do. It implements no filter.
//!
//! - [`kind`] — what a filter declares: name, parameters, types, where it may run. Start reading here.
//! - [`run`] — what a filter does: the traits behind an instance.
//! - [`batch`] — up to 64 blocks, and which of them are still alive.
//! - [`ring_header`] — the header of a block that is copied into a ring for another process.
//! - [`facts`] — the facts of a stream as bytes, for that header.
//! - [`context`] — what a running filter may reach: bytes, streams, the blocks it makes, its counters (`counter`).
//! - [`partition`] — how blocks are divided among threads, and which filters have a copy in each.
//! - [`device`] — sources that read a device; [`capture_request`] — what they ask the device's owner for.
//! - [`param`] — typed parameters with units and defaults.
//! - [`record`] — rows of named, typed fields, encoded once.
//! - [`wanted`] — what the filters behind a filter read of its records and messages.
//! - [`stream`] — facts about connections, by class.
//! - [`env`](mod@env) — the outside world of an instance.
//!
//! Filters return and the engine moves blocks: a filter cannot call its neighbour, the engine or the far end of a ring.

#![forbid(unsafe_code)]

pub mod batch;
pub mod capture_request;
pub mod context;
pub mod counter;
pub mod device;
pub mod env;
pub mod facts;
pub mod group;
pub mod kind;
pub mod marks;
pub mod param;
pub mod partition;
pub mod record;
pub mod ring_header;
pub mod run;
pub mod stream;
pub mod types;
pub mod wanted;

pub use batch::Batch;
pub use context::{Context, Order};
pub use counter::Counters;
pub use device::{Decides, DeviceAccess};
pub use env::{Env, Output, Wait};
pub use group::Group;
pub use kind::{ClassUse, Example, Gives, Kind, Lower, Mode, Parts, PreFilter, Spaces};
pub use marks::Marks;
pub use packet::malformed::Malformed;
pub use param::{Param, ParamError, ParamType, Params};
pub use record::{Field, FieldType, Row, RowWriter, Schema, Unit};
pub use run::{
    AnySessionFilter, Closed, Failure, Filter, Instance, Made, Moment, Progress, Pull, SessionFilter, SessionKey, Slot,
    Source, Status,
};
pub use stream::{StreamFacts, StreamState, StreamTable};
pub use types::{Type, Types};
pub use wanted::Wanted;

/// Declares a module for each filter of a crate, and lists their kinds as `KINDS`.
#[macro_export]
macro_rules! filters {
    ($($(#[$only:meta])? $name:ident),* $(,)?) => {
        $($(#[$only])? pub mod $name;)*

        /// Every filter of this crate.
        pub static KINDS: &[&$crate::Kind] = &[$($(#[$only])? &$name::KIND),*];
    };
}

/// All names that a filter's file needs, in one line: `use filter::prelude::*;`.
pub mod prelude {
    pub use crate::{
        Batch, ClassUse, Closed, Context, Decides, DeviceAccess, Env, Example, Failure, Field, FieldType, Filter,
        Gives, Instance, Kind, Lower, Made, Mode, Output, Param, ParamError, ParamType, Params, Parts, Pull, Row,
        RowWriter, Schema, SessionFilter, SessionKey, Source, Spaces, Status, StreamFacts, StreamState, StreamTable,
        Type, Types, Unit,
    };
    pub use base::id::Class;
    pub use buffer::{Descriptor, Flags};
}
