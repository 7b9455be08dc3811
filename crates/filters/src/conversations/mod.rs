//! Filters whose records are the exchanges of a conversation: one for each protocol that implements
//! [`Talk`]. Description, schema and records come from the protocol's own file.

mod first;
#[cfg(test)]
mod tests;

use crate::parts::eve::begin_row;
use crate::parts::fact_fields::FactFields;
use crate::parts::heard::Facts;
use crate::parts::outlet::Outlet;
use base::limits::{TALK_BUFFERED_BYTES, TALK_EXCHANGES, TALK_ITEMS, TALK_TEXT_BYTES};
use filter::prelude::*;
use first::{First, Found};
use protocols::app::App;
use protocols::carry::Carried;
use protocols::conversation::{Ear, Fact as _, Fed, How, Id, Over, Protocol, Run, Side, Talk};
use std::collections::VecDeque;
use std::marker::PhantomData;

const _: () =
    assert!(TALK_EXCHANGES == 64 && TALK_ITEMS == 64 && TALK_TEXT_BYTES == 64 << 10, "the help of protocols says so");

/// What a protocol's filter is.
const fn kind<T: Talk>() -> Kind {
    let Protocol { over, does, help, .. } = T::PROTOCOL;
    let kind = Kind::new(T::PROTOCOL.app.name(), does, make::<T>)
        .help(help)
        .rejects()
        .gives_records(Of::<T>::SCHEMA)
        .mode(Mode::Session(SessionKey::Connection))
        .parses_payload()
        .examples(Of::<T>::EXAMPLES);
    match over {
        Over::Streams => kind.takes(&[Type::Bytes]).wants(&[(Type::Frame, "tcp"), (Type::Packet, "tcp")]),
        Over::Datagrams => kind.takes(&[Type::Message]).wants(&[(Type::Frame, "udp"), (Type::Packet, "udp")]),
        Over::Both => kind
            .takes(&[Type::Bytes, Type::Message])
            .wants(&[(Type::Frame, "{ udp + tcp }"), (Type::Packet, "{ udp + tcp }")]),
    }
}

fn make<T: Talk>(_params: &Params, _env: &Env) -> Result<Instance, ParamError> {
    Ok(Instance::session(SessionKey::Connection, Talks::<T>::new(TALK_BUFFERED_BYTES)))
}

/// The static parts of a protocol's filter.
struct Of<T>(PhantomData<T>);

/// Declares and lists kinds, and lists objects.
macro_rules! tables {
    (; $($module:ident $app:ident)*) => {
        $(
            #[doc = concat!("The filter of `protocols::", stringify!($module), "`.")]
            pub mod $module {
                /// What the filter is.
                pub static KIND: filter::Kind = super::kind::<protocols::$module::Conversation>();
            }
        )*

        /// These filters.
        pub static KINDS: &[&Kind] = &[$(&$module::KIND),*];

        /// The objects of alerts, by protocol.
        pub const OBJECTS: &[(App, &Schema)] =
            &[$((App::$app, Of::<protocols::$module::Conversation>::OBJECT)),*];
    };
}

protocols::talks! { tables {} }

impl<T: Talk> Of<T> {
    const NAME: &'static str = T::PROTOCOL.app.name();
    const FIELDS: &'static FactFields = &FactFields::record(T::PROTOCOL.facts);
    const OBJECT_FIELDS: &'static FactFields = &Self::FIELDS.within(Self::NAME);
    const SCHEMA: &'static Schema = &Self::FIELDS.schema(Self::NAME).summary(T::PROTOCOL.summary);
    const OBJECT: &'static Schema = &Self::OBJECT_FIELDS.object(Self::NAME);
    const EXAMPLES: &'static [Example] = &[Example { request: T::PROTOCOL.example.0, output: T::PROTOCOL.example.1 }];
}

/// The filter of a protocol.
struct Talks<T> {
    row: RowWriter,
    /// Parts of messages, and facts of exchanges that are not over, of all connections.
    carried: Carried,
    talk: PhantomData<T>,
}

struct Session<T: Talk> {
    /// `None`: not the protocol's.
    conversation: Option<T>,
    /// The first bytes, until they tell the protocol.
    first: Option<First>,
    /// The client's direction; `None` before the first bytes.
    client: Option<u8>,
    exchanges: VecDeque<Exchange<T::Fact>>,
}

/// What was said in an exchange that is not over.
struct Exchange<F> {
    number: u64,
    facts: Facts<F>,
    class: Class,
    /// When a side of it ended last.
    time: u64,
}

/// Makes records of the exchanges that it hears.
struct Listener<'a, 'b, T: Talk> {
    exchanges: &'a mut VecDeque<Exchange<T::Fact>>,
    row: &'a mut RowWriter,
    carried: &'a Carried,
    outlet: &'a mut Outlet<'b>,
    time: u64,
    /// The client's.
    class: Class,
}

impl<T: Talk> Listener<'_, '_, T> {
    fn find(&mut self, number: u64) -> Option<&mut Exchange<T::Fact>> {
        self.exchanges.iter_mut().find(|exchange| exchange.number == number)
    }

    fn take(&mut self, number: u64) -> Option<Exchange<T::Fact>> {
        let at = self.exchanges.iter().position(|exchange| exchange.number == number)?;
        self.exchanges.remove(at)
    }
}

impl<T: Talk> Ear<T::Fact> for Listener<'_, '_, T> {
    fn begin(&mut self, id: Id) {
        if self.find(id.exchange).is_some() {
            return;
        }
        if self.exchanges.len() == TALK_EXCHANGES {
            return self.outlet.count("exchanges not listed", 1);
        }
        let of_server = T::PROTOCOL.is_of_sender && !id.side.is_client();
        let class = Class::of_stream(self.class.connection(), self.class.direction() ^ u8::from(of_server));
        let (number, facts, time) = (id.exchange, Facts::default(), self.time);
        self.exchanges.push_back(Exchange { number, facts, class, time });
    }

    fn fact(&mut self, id: Id, fact: T::Fact, value: &[u8]) {
        let about = &T::Fact::ALL[fact.number()];
        if about.field[id.side.index()].is_empty() {
            return;
        }
        let carried = self.carried;
        let text = &value[..value.len().min(TALK_TEXT_BYTES)];
        if text.len() < value.len() {
            self.outlet.count("texts cut", 1);
        }
        let Some(Exchange { facts, .. }) = self.find(id.exchange) else { return };
        let count = facts.count(fact, id.side);
        if about.kind.is_item() && count == TALK_ITEMS {
            self.outlet.count("items not listed", 1);
        } else if (about.kind.is_item() || count == 0) && !facts.keep(fact, id.side, text, carried) {
            self.outlet.count("texts left out for want of memory", 1);
        }
    }

    fn number(&mut self, id: Id, fact: T::Fact, value: u64) {
        self.fact(id, fact, &value.to_be_bytes());
    }

    fn lost(&mut self, _id: Id, what: &'static str) {
        self.outlet.count(what, 1);
    }

    fn count(&mut self, what: &'static str, times: u64) {
        self.outlet.count(what, times);
    }

    fn end(&mut self, id: Id, _how: How) {
        let time = self.time;
        if let Some(exchange) = self.find(id.exchange) {
            exchange.time = time;
        }
    }

    fn over(&mut self, exchange: u64) {
        let Some(Exchange { mut facts, class, time, .. }) = self.take(exchange) else { return };
        begin_row(self.row, time, class, self.outlet.facts(class));
        facts.write(self.row);
        facts.clear(self.carried);
        self.outlet.record(self.row, time, class);
    }

    fn forget(&mut self, exchange: u64) {
        if let Some(mut exchange) = self.take(exchange) {
            exchange.facts.clear(self.carried);
        }
    }
}

impl<T: Talk> SessionFilter for Talks<T> {
    type State = Session<T>;

    fn open(&mut self, class: Class, cx: &mut Context<'_>) -> Session<T> {
        let flow = cx.streams.get(class).map(|facts| &facts.flow);
        let first = flow.filter(|_| T::PROTOCOL.probe.is_some()).map(|flow| First::new(T::PROTOCOL.app, *flow));
        Session { conversation: flow.map(T::new), first, client: None, exchanges: VecDeque::new() }
    }

    fn run(&mut self, session: &mut Session<T>, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
        self.row.want(cx.wanted);
        Outlet::each(batch, cx, |block, outlet| self.block(session, block, outlet) != Fed::NotMine)
    }

    fn close(
        &mut self,
        mut session: Session<T>,
        class: Class,
        _why: Closed,
        cx: &mut Context<'_>,
    ) -> Result<(), Box<Failure>> {
        let (time, client) = (cx.now, session.client.unwrap_or(0));
        if let Some(first) = &mut session.first {
            first.clear(&self.carried);
        }
        let class = Class::of_stream(class.connection(), client);
        let mut outlet = Outlet::new(cx);
        let Session { conversation: Some(conversation), exchanges, .. } = &mut session else { return Ok(()) };
        let (carried, mut ear) = self.ear(exchanges, &mut outlet, time, class);
        conversation.end(carried, &mut ear);
        exchanges.iter_mut().for_each(|exchange| exchange.facts.clear(&self.carried));
        Ok(())
    }
}

impl<T: Talk> Talks<T> {
    /// `limit`: maximum bytes kept of all connections.
    fn new(limit: usize) -> Talks<T> {
        Talks { row: RowWriter::new(Of::<T>::SCHEMA), carried: Carried::new(limit), talk: PhantomData }
    }

    fn ear<'a, 'b>(
        &'a mut self,
        exchanges: &'a mut VecDeque<Exchange<T::Fact>>,
        outlet: &'a mut Outlet<'b>,
        time: u64,
        class: Class,
    ) -> (&'a Carried, Listener<'a, 'b, T>) {
        let Talks { row, carried, .. } = self;
        (carried, Listener { exchanges, row, carried, outlet, time, class })
    }

    /// Reads a block.
    fn block(&mut self, session: &mut Session<T>, block: &Descriptor, outlet: &mut Outlet<'_>) -> Fed {
        let run = Run { bytes: outlet.bytes(block), time: block.time };
        let direction = block.class.direction();
        if session.client.is_none() && !run.bytes.is_empty() {
            let is_of_server = T::sender(run.bytes).is_some_and(|side| !side.is_client());
            session.client = Some(if T::sender(run.bytes).is_some() { direction ^ u8::from(is_of_server) } else { 0 });
        }
        let client = session.client.unwrap_or(0);
        let side = Side::to_server(direction == client);
        let class = Class::of_stream(block.class.connection(), client);
        let Session { conversation, first, exchanges, .. } = session;
        let found = match first {
            Some(first) => first.add(side, run.bytes, block.gap(), &self.carried),
            None => Found::Known,
        };
        let (carried, mut ear) = self.ear(exchanges, outlet, block.time, class);
        let (Some(talk), Found::Known | Found::Now) = (&mut *conversation, found) else {
            if found == Found::No {
                (*conversation, *first) = (None, None);
            }
            return Fed::NotMine;
        };
        if let Some(mut first) = first.take() {
            first.replay(side, carried, |side, bytes, gap| {
                if gap > 0 {
                    talk.gap(side, gap, carried, &mut ear);
                }
                talk.feed(side, Run { bytes, time: block.time }, carried, &mut ear);
            });
        } else if block.gap() > 0 {
            talk.gap(side, block.gap(), carried, &mut ear);
        }
        talk.feed(side, run, carried, &mut ear)
    }
}
