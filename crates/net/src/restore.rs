//! State that outlives the process of an interface. The daemon keeps a record of each flow, listener and trace, and of each
//! client's doorbells, with their file descriptors. Another process continues with them, and another daemon gets them.
//!
//! A record names a channel's owner; the channel's words hold its progress. The process learns neighbours again, and
//! takes TCP sequence numbers from the channel's last packet. Unaccepted connections have no record.

use crate::accept::OpeningListener;
use crate::answer::TCP;
use crate::connection::Connection;
use crate::error::NetError;
use crate::flow_id::FlowId;
use crate::flows::{Name, NewFlow};
use crate::interface::{Core, Holder};
use crate::limits::CLIENT_FLOWS;
use crate::listeners::Listener;
use crate::numbers::Numbers;
use crate::process::letters::{self, Letter, Letters};
use crate::process::message::{Kept, Owner, Record, Word};
use crate::share::{self, ShareLimits};
use crate::tcp::NO_CHANNEL;
use crate::trace::Tracing;
use crate::users::Users;
use buffer::flow::{Bells, Driver};
use flow::{OpenFlow, OpenListener, TRACE_GEOMETRY};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// The most records in one letter: their file descriptors fit beside it.
const RECORDS: usize = 8;

fn handles(bells: &Bells) -> Vec<Arc<OwnedFd>> {
    bells.handles().map(Arc::clone).to_vec()
}

impl Core {
    /// The record of the flow, listener or trace of this number, preceded (`has_bells`) by that of its client's
    /// doorbells. A waiting connection has none.
    pub(crate) fn records_of(&self, number: u64, has_bells: bool) -> Vec<letters::Kept> {
        let found = self
            .flows
            .numbered(number)
            .and_then(|id| self.flow_record(id))
            .or_else(|| self.listener_record(|listener| listener.number == number))
            .or_else(|| self.trace_record(|trace| trace == number));
        let bells = found.as_ref().filter(|_| has_bells).and_then(|(record, _)| self.bells_record(record.client));
        bells.into_iter().chain(found).collect()
    }

    /// Sends all records, and then that they are complete.
    pub(crate) fn tell_everything(&self, letters: &Letters) {
        let bells = self.clients.keys().filter_map(|client| self.bells_record(*client));
        let flows = self.flows.ids().into_iter().filter_map(|id| self.flow_record(id));
        let listeners = self.flows.listeners.all().map(|(_, listener)| listener.number);
        let listeners = listeners.filter_map(|number| self.listener_record(|listener| listener.number == number));
        let traces = self.traces.all().iter().map(|trace| trace.number);
        let traces = traces.filter_map(|number| self.trace_record(|trace| trace == number));
        let all: Vec<letters::Kept> = bells.chain(flows).chain(listeners).chain(traces).collect();
        for some in all.chunks(RECORDS) {
            letters.send(Letter::with(0, Word::Keep, Vec::new(), some.to_vec()));
        }
        letters.send(Letter::word(0, Word::Ready));
    }

    fn bells_record(&self, client: u64) -> Option<letters::Kept> {
        let found = self.clients.get(&client)?;
        let (process, user) = (found.process, found.user);
        let record = Record { number: 0, client, process, user, channel: 0, what: Kept::Bells };
        Some((record, handles(&found.bells)))
    }

    fn flow_record(&self, id: FlowId) -> Option<letters::Kept> {
        let flow = self.flows.get(id).filter(|flow| flow.channel != NO_CHANNEL && flow.closing.is_none())?;
        let Name { protocol, local, remote } = flow.name;
        let geometry = flow.driver.geometry();
        let open = OpenFlow {
            share: self.scheduler.class(id.key()).map(share::text),
            send_records: geometry.send_records,
            send_bytes: geometry.send_bytes,
            receive_buffers: geometry.receive_buffers,
            buffer_bytes: geometry.buffer_bytes,
            ..OpenFlow::new(None, protocol, local, remote)
        };
        let (client, channel) = (flow.client, flow.channel);
        let record = Record {
            number: flow.number,
            client,
            process: flow.process,
            user: flow.user,
            channel,
            what: Kept::Flow(open, self.scheduler.user(id.key()).unwrap_or_default().weight),
        };
        Some((record, flow.driver.segments().to_vec()))
    }

    fn listener_record(&self, is_it: impl Fn(&Listener) -> bool) -> Option<letters::Kept> {
        let (local, listener) = self.flows.listeners.all().find(|(_, listener)| is_it(listener))?;
        let geometry = listener.geometry;
        let open = OpenListener {
            device: None,
            local,
            backlog: listener.backlog as u32,
            window: listener.window,
            window_shift: listener.shift,
            share: Some(share::text(listener.class)),
            send_records: geometry.send_records,
            send_bytes: geometry.send_bytes,
            receive_buffers: geometry.receive_buffers,
            buffer_bytes: geometry.buffer_bytes,
        };
        let record = Record {
            number: listener.number,
            client: listener.client,
            process: listener.process,
            user: listener.user,
            channel: listener.channel,
            what: Kept::Listener(open, listener.limits),
        };
        Some((record, Vec::new()))
    }

    fn trace_record(&self, is_it: impl Fn(u64) -> bool) -> Option<letters::Kept> {
        let trace = self.traces.all().iter().find(|trace| is_it(trace.number))?;
        let Owner { client, process, user, .. } = trace.owner;
        let what = Kept::Trace(trace.flow, trace.snap as u32);
        let record = Record { number: trace.number, client, process, user, channel: 0, what };
        Some((record, trace.driver.segments().iter().cloned().chain(handles(&trace.bells)).collect()))
    }

    /// Restores something of an earlier process. If that fails, it ends for its application.
    ///
    /// # Errors
    ///
    /// It is invalid, or the interface has no room for it.
    pub(crate) fn restore(
        &mut self,
        record: Record,
        fds: Vec<OwnedFd>,
        users: &Users,
        numbers: &Arc<Numbers>,
        now: u64,
    ) -> Result<(), NetError> {
        if fds.len() != record.fds() {
            return Err(lost("its file descriptors did not come"));
        }
        let Record { number, client, process, user, channel, what } = record;
        if channel as usize >= CLIENT_FLOWS {
            return Err(lost("its channel number is above the limit"));
        }
        let limits = ShareLimits::NONE;
        let owner = Owner { client, process, user, limits, is_first: false, has_port: true };
        // For a flow and a trace.
        let ours = fds.get(1).and_then(|ours| ours.try_clone().ok());
        let restored = match what {
            Kept::Bells => {
                let bells = Bells::restore(all_of(fds)?).map_err(lost)?;
                self.give_bells(client, process, user, Some(bells));
                return Ok(());
            }
            Kept::Flow(open, user_weight) => {
                let owner = Owner { limits: ShareLimits { user_weight, ..limits }, ..owner };
                self.restore_flow(number, &owner, channel, &open, all_of(fds)?, users, now)
            }
            Kept::Listener(open, limits) => {
                let owner = Owner { limits, ..owner };
                self.restore_listener(number, owner, channel, open, users, numbers)
            }
            Kept::Trace(flow, snap) => self.restore_trace(number, owner, flow, snap, all_of(fds)?, users),
        };
        if let (Err(_), Some(ours)) = (&restored, ours) {
            // An invalid channel cannot be closed.
            let _ = buffer::flow::close_abandoned(ours, Errno::NETDOWN.raw_os_error());
        }
        if let Some(client) = self.clients.get(&client) {
            // The earlier process may have ended before it rang.
            client.bells.ring(channel as usize);
        }
        restored
    }

    #[expect(clippy::too_many_arguments, reason = "a record with its parts")]
    fn restore_flow(
        &mut self,
        number: u64,
        owner: &Owner,
        channel: u32,
        open: &OpenFlow,
        segments: [OwnedFd; 2],
        users: &Users,
        now: u64,
    ) -> Result<(), NetError> {
        let Owner { client, process, user, limits, .. } = *owner;
        self.has_doorbells(client)?;
        let driver = Driver::restore(open.geometry(), segments).map_err(lost)?;
        let (into, out) = open.geometry().bytes();
        let permit = users.take(user, into + out)?;
        let class = share::read(open.share.as_deref().unwrap_or("fair"), self.wire.is_paced())?;
        let OpenFlow { protocol, local, remote, .. } = *open;
        let name = self.flows.name(Name { protocol, local, remote }, user, now)?;
        let connection = (protocol == TCP).then(Connection::default);
        let user_weight = limits.user_weight;
        let new = NewFlow { number, name, process, user, user_weight, client, channel, driver, connection, permit };
        let id = self.insert(new, class, now)?;
        self.hold(client, channel, Holder::Flow(id));
        let Some(flow) = self.flows.get_mut(id) else { return Ok(()) };
        if let Some(outgoing) = flow.driver.last_done() {
            let (len, mut header) = (outgoing.len(), flow.template.header());
            // The application may have overwritten it since.
            if flow.driver.copy_out(&outgoing, 0, header.bytes_mut()) == header.len()
                && flow.template.fits(&header, len)
            {
                flow.note_sent(&header, len);
            }
        }
        if flow.driver.is_closed() {
            self.finish(id, now);
        } else if flow.driver.waiting() > 0 {
            self.activate_number(number, now);
        }
        Ok(())
    }

    fn restore_listener(
        &mut self,
        number: u64,
        owner: Owner,
        channel: u32,
        open: OpenListener,
        users: &Users,
        numbers: &Arc<Numbers>,
    ) -> Result<(), NetError> {
        self.has_doorbells(owner.client)?;
        let class = share::read(open.share.as_deref().unwrap_or("fair"), self.wire.is_paced())?;
        let (permit, users, numbers) = (users.take(owner.user, 0)?, users.clone(), Arc::clone(numbers));
        let opening = OpeningListener { open, owner, number, bells: None, permit, users, numbers };
        self.put_listener(opening, channel, class).map(drop)
    }

    fn restore_trace(
        &mut self,
        number: u64,
        owner: Owner,
        flow: u64,
        snap: u32,
        [theirs, ours, page, mine, bell]: [OwnedFd; 5],
        users: &Users,
    ) -> Result<(), NetError> {
        let bells = Bells::restore([page, mine, bell]).map_err(lost)?;
        bells.ring(0);
        let driver = Driver::restore(TRACE_GEOMETRY, [theirs, ours]).map_err(lost)?;
        let (into, out) = TRACE_GEOMETRY.bytes();
        let permit = users.take(owner.user, into + out)?;
        let tracing = Tracing { number, flow, user: None, owner, snap: snap as usize, driver, bells, permit };
        self.trace(tracing).map(drop)
    }

    fn has_doorbells(&self, client: u64) -> Result<(), NetError> {
        if self.clients.contains_key(&client) { Ok(()) } else { Err(lost("its client has no doorbells")) }
    }
}

/// The error for an invalid record.
fn lost(why: impl std::fmt::Display) -> NetError {
    NetError::system("take over the state of an earlier process", why)
}

fn all_of<const N: usize>(fds: Vec<OwnedFd>) -> Result<[OwnedFd; N], NetError> {
    <[OwnedFd; N]>::try_from(fds).map_err(|_| lost("other file descriptors came"))
}
