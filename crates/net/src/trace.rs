//! Traces: an application reads the frames of a flow in both directions, as the driver sees them. A received frame is
//! traced when its flow is found, a sent frame when it goes to the device.
//!
//! The driver copies the frames into the receive half of a channel of their own (`flow::TraceHead`). The traced flow
//! never waits: a frame that finds too few empty buffers there is left out and counted.

use crate::counters::Event;
use crate::error::{NetError, NetErrorKind};
use crate::interface::Core;
use crate::limits::FLOW_TRACES;
use crate::process::message::Owner;
use crate::users::Permit;
use buffer::flow::{Bells, Driver};
use flow::{Direction, Granted, TraceHead};
use rustix::io::Errno;
use std::time::{SystemTime, UNIX_EPOCH};

/// A trace to begin: everything that can be made outside the interface's thread.
#[derive(Debug)]
pub(crate) struct Tracing {
    /// Its own number.
    pub(crate) number: u64,
    /// The flow's number, and its user. `None`: of any user.
    pub(crate) flow: u64,
    pub(crate) user: Option<u32>,
    pub(crate) owner: Owner,
    /// Bytes of each frame at most.
    pub(crate) snap: usize,
    pub(crate) driver: Driver,
    pub(crate) bells: Bells,
    pub(crate) permit: Permit,
}

#[derive(Debug)]
pub(crate) struct Trace {
    pub(crate) number: u64,
    pub(crate) flow: u64,
    pub(crate) owner: Owner,
    pub(crate) snap: usize,
    pub(crate) driver: Driver,
    pub(crate) bells: Bells,
    /// Whether the application should be rung.
    ring: bool,
    /// It broke its channel.
    is_broken: bool,
    _permit: Permit,
}

impl Trace {
    fn end(&mut self, errno: i32) {
        self.driver.close(errno);
        self.bells.ring(0);
    }
}

/// All traces of an interface.
#[derive(Debug, Default)]
pub(crate) struct Traces {
    all: Vec<Trace>,
    /// Numbers of traces that ended.
    pub(crate) ended: Vec<u64>,
}

impl Traces {
    /// All of them.
    pub(crate) fn all(&self) -> &[Trace] {
        &self.all
    }

    /// Ends those that this is true of; their applications find this errno.
    fn end_those(&mut self, errno: i32, ends: impl Fn(&Trace) -> bool) {
        for mut trace in self.all.extract_if(.., |trace| ends(trace)) {
            trace.end(errno);
            self.ended.push(trace.number);
        }
    }

    /// Copies a frame to all traces of its flow. `time`: ns since 1970 UTC; none: now.
    pub(crate) fn record(&mut self, flow: u64, direction: Direction, frame: &[u8], time: Option<u64>) {
        let now = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
        let time = time.unwrap_or_else(now);
        // A frame has 64 KiB at most.
        let head = TraceHead { direction, bytes: frame.len() as u32 }.to_bytes();
        for trace in self.all.iter_mut().filter(|trace| trace.flow == flow && !trace.is_broken) {
            let kept = &frame[..frame.len().min(trace.snap)];
            // A frame that finds no room is counted in the channel.
            trace.is_broken = trace.driver.deliver(&[&head, kept], time).is_err();
            trace.ring = true;
        }
    }

    /// Rings the applications that have news.
    pub(crate) fn ring(&mut self) {
        for trace in self.all.iter_mut().filter(|trace| trace.ring) {
            trace.ring = false;
            trace.bells.ring(0);
        }
        self.end_those(Errno::PROTO.raw_os_error(), |trace| trace.is_broken);
    }

    /// A flow ended, and its traces with it.
    pub(crate) fn end(&mut self, flow: u64) {
        self.end_those(0, |trace| trace.flow == flow);
    }
}

impl Core {
    /// Begins a trace.
    pub(crate) fn trace(&mut self, tracing: Tracing) -> Result<Granted, NetError> {
        let Tracing { number, flow: traced, user, owner, snap, driver, bells, permit } = tracing;
        let found = self.flows.numbered(traced).and_then(|id| self.flows.get_mut(id));
        let absent = || NetError::new(NetErrorKind::Absent, format!("there is no flow {traced} of yours"));
        let flow = found.filter(|flow| user.is_none_or(|user| flow.user == user)).ok_or_else(absent)?;
        if self.traces.all.iter().filter(|trace| trace.flow == traced).count() >= FLOW_TRACES {
            let text = format!("flow {traced} has {FLOW_TRACES} traces, the most it may have; end one of them");
            return Err(NetError::new(NetErrorKind::Full, text));
        }
        flow.is_traced = true;
        let (local, remote) = (flow.name.local, flow.name.remote);
        self.traces.all.push(Trace {
            number,
            flow: traced,
            owner,
            snap,
            driver,
            bells,
            ring: false,
            is_broken: false,
            _permit: permit,
        });
        self.counters.event(Event::Traces);
        Ok(Granted {
            flow: traced,
            channel: 0,
            device: self.name.clone(),
            mac: self.mac,
            prefix: self.routes.prefix(local.ip()).unwrap_or(flow::bits(local.ip())),
            mtu: self.mtu,
            local,
            isn: 0,
            remote,
            unfinished_checksums: self.unfinished_checksums,
            has_bells: true,
        })
    }

    /// A client is gone, and its traces with it.
    pub(crate) fn end_traces(&mut self, client: u64) {
        // The client has gone, and needs no word.
        let gone = self.traces.all.extract_if(.., |trace| trace.owner.client == client);
        self.traces.ended.extend(gone.map(|trace| trace.number));
        let numbers: Vec<u64> = self.traces.all.iter().map(|trace| trace.flow).collect();
        for id in self.flows.ids() {
            if let Some(flow) = self.flows.get_mut(id).filter(|flow| flow.is_traced) {
                flow.is_traced = numbers.contains(&flow.number);
            }
        }
    }
}
