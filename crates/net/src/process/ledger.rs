//! The daemon's records of an interface: everything that outlives the interface's process, with its file descriptors,
//! the permit of its user's quota and its port. The daemon does not map the memory.

use super::message::{Kept, Record};
use crate::sharing::keeper::Reservation;
use crate::users::Permit;
use buffer::flow::{Bells, close_abandoned};
use rustix::io::Errno;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// The most records of one interface: as many flows as 64 users may have.
const RECORDS: usize = 1 << 18;

/// A record, and the quota permit and port that the daemon reserved for it.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) record: Record,
    pub(crate) fds: Vec<OwnedFd>,
    permit: Option<Permit>,
    reservation: Option<Arc<Reservation>>,
}

/// All records of an interface.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// Flows, listeners and traces, by number.
    entries: BTreeMap<u64, Entry>,
    /// Doorbells, by client.
    bells: HashMap<u64, Entry>,
    /// Clients of an earlier daemon that have not come to this one yet.
    unclaimed: HashSet<u64>,
}

/// Identifies an open file as long as it is open: device and inode. Memory files never reuse numbers.
pub(crate) fn identity(fd: impl AsFd) -> Option<(u64, u64)> {
    rustix::fs::fstat(fd).ok().map(|stat| (stat.st_dev, stat.st_ino))
}

impl Ledger {
    /// Keeps a record. It replaces a record of the same number, whose quota permit and port stay. Returns the replaced
    /// entry, or the new one if the ledger is full.
    pub(crate) fn keep(&mut self, record: Record, fds: Vec<OwnedFd>) -> Option<Entry> {
        let mut entry = Entry { record, fds, permit: None, reservation: None };
        if entry.record.what == Kept::Bells {
            return self.bells.insert(entry.record.client, entry);
        }
        if let Some(before) = self.entries.get_mut(&entry.record.number) {
            (entry.permit, entry.reservation) = (before.permit.take(), before.reservation.take());
        } else if self.entries.len() >= RECORDS {
            return Some(entry);
        }
        self.entries.insert(entry.record.number, entry)
    }

    /// Adds the quota permit and the port of a record: they are released with the record. If the record has gone
    /// already, they are released at once.
    pub(crate) fn give(&mut self, number: u64, permit: Option<Permit>, reservation: Option<Arc<Reservation>>) {
        if let Some(entry) = self.entries.get_mut(&number) {
            (entry.permit, entry.reservation) = (permit, reservation);
        }
    }

    /// A flow, listener or trace ended. Returns what to drop, which the caller does without a lock.
    pub(crate) fn ended(&mut self, number: u64) -> Option<Entry> {
        self.entries.remove(&number)
    }

    /// A client has gone. Returns what to drop.
    pub(crate) fn left(&mut self, client: u64) -> Vec<Entry> {
        self.unclaimed.remove(&client);
        let gone = self.entries.extract_if(.., |_, entry| entry.record.client == client).map(|(_, entry)| entry);
        gone.chain(self.bells.remove(&client)).collect()
    }

    /// The port of the listener of this channel.
    pub(crate) fn port_of(&self, client: u64, channel: u32) -> Option<Arc<Reservation>> {
        self.listener(client, channel)?.reservation.clone()
    }

    /// Channel bytes of a connection that this channel's listener accepts.
    pub(crate) fn accepted_bytes(&self, client: u64, channel: u32) -> Option<usize> {
        let Kept::Listener(open, _) = &self.listener(client, channel)?.record.what else { return None };
        let (into, out) = open.geometry().bytes();
        Some(into + out)
    }

    fn listener(&self, client: u64, channel: u32) -> Option<&Entry> {
        self.entries.values().find(|entry| {
            (entry.record.client, entry.record.channel) == (client, channel)
                && matches!(entry.record.what, Kept::Listener(..))
        })
    }

    /// All records in the order of restoring: doorbells before the flows that ring them, flows before their traces.
    pub(crate) fn all(&self) -> Vec<(Record, Vec<BorrowedFd<'_>>)> {
        let rank = |record: &Record| match record.what {
            Kept::Bells => 0,
            Kept::Flow(..) => 1,
            Kept::Listener(..) => 2,
            Kept::Trace(..) => 3,
        };
        let entries = self.bells.values().chain(self.entries.values());
        let mut all: Vec<_> =
            entries.map(|entry| (entry.record.clone(), entry.fds.iter().map(AsFd::as_fd).collect())).collect();
        all.sort_by_key(|(record, _): &(Record, Vec<_>)| (rank(record), record.number));
        all
    }

    /// Flows, listeners and traces.
    pub(crate) fn held(&self) -> Vec<Held> {
        let held = |entry: &Entry| {
            let (geometry, port) = match &entry.record.what {
                Kept::Flow(open, _) => (Some(open.geometry()), Some((open.protocol, open.local))),
                Kept::Listener(open, _) => (None, Some((crate::answer::TCP, open.local))),
                Kept::Trace(..) => (Some(flow::TRACE_GEOMETRY), None),
                Kept::Bells => (None, None),
            };
            let bytes = geometry.map_or(0, |geometry| {
                let (into, out) = geometry.bytes();
                into + out
            });
            Held { number: entry.record.number, user: entry.record.user, bytes, port }
        };
        self.entries.values().map(held).collect()
    }

    /// All clients belong to an earlier daemon: each must be claimed.
    pub(crate) fn nobody_came(&mut self) {
        let clients = self.entries.values().map(|entry| entry.record.client).chain(self.bells.keys().copied());
        self.unclaimed = clients.collect();
    }

    /// Clients that were not claimed.
    pub(crate) fn unclaimed(&mut self) -> Vec<u64> {
        self.unclaimed.drain().collect()
    }

    /// Claims the client with these doorbells, if it is not claimed yet. Returns it and its user.
    pub(crate) fn claim(&mut self, page: (u64, u64), user: u32) -> Option<Claimed> {
        let has = |entry: &Entry| entry.fds.first().and_then(identity) == Some(page);
        let (client, entry) =
            self.bells.iter().find(|(client, entry)| self.unclaimed.contains(client) && has(entry))?;
        if entry.record.user != user {
            return None;
        }
        let client = *client;
        self.unclaimed.remove(&client);
        let of_client = self.entries.values().map(|entry| &entry.record).filter(|record| record.client == client);
        let channels = of_client.filter(|record| !matches!(record.what, Kept::Trace(..))).map(|record| record.channel);
        Some(Claimed { client, channels: channels.collect() })
    }

    /// No process continues: ends all flows with this errno. Returns what to drop, and the number of invalid channels.
    pub(crate) fn close_all(&mut self, errno: Errno) -> (Vec<Entry>, usize) {
        let entries: Vec<Entry> = std::mem::take(&mut self.entries).into_values().collect();
        let bells: HashMap<u64, Bells> =
            self.bells.drain().filter_map(|(client, entry)| Some((client, attach(&entry.fds)?))).collect();
        let mut failed = 0;
        for Entry { record, fds, .. } in &entries {
            let channel = record.channel as usize;
            let closed =
                fds.get(1).map(|ours| Some(close_abandoned(ours.try_clone().ok()?, errno.raw_os_error()).is_ok()));
            failed += usize::from(closed.is_some_and(|closed| closed != Some(true)));
            match record.what {
                Kept::Trace(..) => drop(fds.get(2..).and_then(attach).map(|bells| bells.ring(channel))),
                _ => drop(bells.get(&record.client).map(|bells| bells.ring(channel))),
            }
        }
        self.unclaimed.clear();
        (entries, failed)
    }
}

/// The user's quota and the port that a record uses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    pub(crate) number: u64,
    pub(crate) user: u32,
    /// Bytes of its channel.
    pub(crate) bytes: usize,
    /// Protocol, address and port. `None`: it has no port.
    pub(crate) port: Option<(u8, SocketAddr)>,
}

/// A claimed client, and its channels.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Claimed {
    pub(crate) client: u64,
    pub(crate) channels: Vec<u32>,
}

/// The driver's side of doorbells.
fn attach(fds: &[OwnedFd]) -> Option<Bells> {
    let copies: Vec<OwnedFd> = fds.iter().map(|fd| fd.try_clone().ok()).collect::<Option<_>>()?;
    Bells::restore(copies.try_into().ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use buffer::flow::{Application, Driver, State};
    use flow::OpenFlow;
    use std::net::Ipv4Addr;

    fn copies(fds: &[Arc<OwnedFd>]) -> Vec<OwnedFd> {
        fds.iter().map(|fd| fd.try_clone().expect("a file descriptor")).collect()
    }

    /// A client with a flow, and its application's side.
    fn client(ledger: &mut Ledger, client: u64, user: u32, number: u64) -> (Bells, Application) {
        let open = OpenFlow::new(None, 17, SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 4000), None);
        let geometry = open.geometry();
        let (driver, segments) = Driver::create(geometry).expect("a little memory");
        let (bells, handles) = Bells::create().expect("as above");
        let record = |number, what| Record { number, client, process: 1, user, channel: 3, what };
        ledger.keep(record(0, Kept::Bells), copies(&bells.handles().map(Arc::clone)));
        ledger.keep(record(number, Kept::Flow(open, 1)), copies(driver.segments()));
        (Bells::attach(handles).expect("they are sound"), Application::attach(geometry, segments).expect("as above"))
    }

    #[test]
    fn flows_are_claimed_once_by_their_doorbells_and_by_their_user() {
        let mut ledger = Ledger::default();
        let [one, other] =
            [(1, 1000, 11), (2, 1001, 12)].map(|(id, user, number)| client(&mut ledger, id, user, number));
        let page = |(bells, _): &(Bells, Application)| identity(bells.handles()[0]).expect("it is open");
        assert_eq!(ledger.claim(page(&one), 1000), None, "a client of this daemon");
        ledger.nobody_came();
        assert_eq!(ledger.claim(page(&one), 1001), None, "another user has it");
        // Neither the doorbells themselves nor memory of the channel.
        for fd in [one.0.handles()[1], one.0.handles()[2]] {
            assert_eq!(ledger.claim(identity(fd).expect("it is open"), 1000), None);
        }
        let own = Bells::create().expect("a little memory").0;
        assert_eq!(ledger.claim(identity(own.handles()[0]).expect("it is open"), 1000), None);
        assert_eq!(ledger.claim(page(&one), 1000), Some(Claimed { client: 1, channels: vec![3] }));
        assert_eq!(ledger.claim(page(&one), 1000), None, "twice");
        assert_eq!(ledger.unclaimed(), [2]);
        assert_eq!(ledger.claim(page(&other), 1001), None, "too late");
        assert_eq!(ledger.left(2).len(), 2);
        assert_eq!(ledger.all().len(), 2);
    }

    #[test]
    fn a_record_that_comes_again_is_replaced_and_what_ends_is_closed() {
        let mut ledger = Ledger::default();
        let (bells, flow) = client(&mut ledger, 1, 1000, 11);
        let entry = ledger.ended(11).expect("it is kept");
        let again = |entry: &Entry| entry.fds.iter().map(|fd| fd.try_clone().expect("a file descriptor")).collect();
        assert!(ledger.keep(entry.record.clone(), again(&entry)).is_none());
        assert!(ledger.keep(entry.record.clone(), again(&entry)).is_some());
        assert_eq!((ledger.held().len(), ledger.held()[0].user), (1, 1000));
        assert!(bells.fall_asleep());
        let (entries, failed) = ledger.close_all(Errno::NETDOWN);
        assert_eq!((entries.len(), failed, flow.state()), (1, 0, State::Closed(Errno::NETDOWN.raw_os_error())));
        let mut news = Vec::new();
        bells.news(|channel| news.push(channel));
        assert_eq!((news, ledger.all().len()), (vec![3], 0));
    }
}
