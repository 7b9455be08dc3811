//! A flow as a source: each datagram is a message, and the datagrams of one peer are a stream.

use super::{failure, open};
use crate::parts::flow_table::{FlowTable, Slot};
use crate::parts::landing::{self, Known, Landing};
use base::limits::{PULL_BLOCKS, UDP_FLOWS};
use buffer::live::SlotFlags;
use filter::prelude::*;
use packet::flow::Flow;
use packet::frame::protocol;
use packet::link::LinkType;
use rustix::event::epoll;
use socket::{SocketError, UdpSocket};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

pub(super) fn make(params: &Params, env: &Env) -> Result<Instance, ParamError> {
    let socket = open(params, env)?;
    let bell = bell(&socket).map_err(|error| ParamError::system(format!("epoll: {error}")))?;
    let landing = Landing::new(&format!("flow {}", socket.local_addr()), LinkType::ETHERNET.0, 0);
    let streams = Streams { local: socket.local_addr(), table: FlowTable::default() };
    Ok(Instance::source(Receiver { socket, bell, landing, streams, reported: 0, stopped: false }))
}

/// One descriptor for two events: the driver rings, or the daemon has gone.
fn bell(socket: &UdpSocket) -> rustix::io::Result<OwnedFd> {
    let bell = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for fd in [socket.fd(), socket.line()] {
        epoll::add(&bell, fd, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
    }
    Ok(bell)
}

struct Receiver {
    socket: UdpSocket,
    bell: OwnedFd,
    landing: Landing,
    streams: Streams,
    /// Errors that the network reported.
    reported: u64,
    /// The run is to end: the source gives only the datagrams that are in the channel.
    stopped: bool,
}

/// The streams of the peers.
struct Streams {
    local: SocketAddr,
    /// Stream numbers by flow.
    table: FlowTable<u32, 1>,
}

impl Streams {
    /// The class of a peer's datagrams. `None`: no stream number is free.
    fn class_of(&mut self, from: SocketAddr, time: u64, cx: &mut Context<'_>) -> Option<Class> {
        let flow = Flow {
            source: from.ip(),
            target: self.local.ip(),
            source_port: from.port(),
            target_port: self.local.port(),
            protocol: protocol::UDP,
        };
        if let Some((slot, _)) = self.table.find(&flow, 0) {
            self.table.touch(slot);
            return self.table.get_mut(slot).map(|number| Class::of_stream(*number, 0));
        }
        if self.table.count() >= UDP_FLOWS
            && let Some(oldest) = self.table.oldest(0)
        {
            cx.count("flows evicted", 1);
            self.end(oldest, cx);
        }
        let facts = StreamFacts::new(flow, time, StreamState::Established);
        let number = cx.streams.open(facts)?;
        self.table.insert(flow, 0, 0, number);
        Some(Class::of_stream(number, 0))
    }

    fn end(&mut self, slot: Slot, cx: &mut Context<'_>) {
        if let Some(number) = self.table.remove(slot) {
            cx.streams.close(number);
        }
    }
}

impl Source for Receiver {
    fn pull(&mut self, cx: &mut Context<'_>) -> Result<Pull, Box<Failure>> {
        self.socket.awake();
        let view = self.landing.view(cx)?;
        let (landing, streams) = (&self.landing, &mut self.streams);
        let looked = self.socket.receive(PULL_BLOCKS, &mut |datagram| {
            let Some(class) = streams.class_of(datagram.from, datagram.time, cx) else {
                cx.counters.blocks_in += 1;
                return cx.drop(1, "no stream number free");
            };
            let len = datagram.payload.len() as u32;
            let known = Known { time: datagram.time, len, wire: len, flags: SlotFlags(0) };
            let given = landing.give(view, cx, known, |space| {
                let len = space.len().min(datagram.payload.len());
                space[..len].copy_from_slice(&datagram.payload[..len]);
                Some((len, class))
            });
            match (given, cx.out.last_mut()) {
                (true, Some(block)) => block.add_flags(Flags::FIRST.with(Flags::LAST)),
                _ => {
                    cx.counters.blocks_in += 1;
                    cx.drop(1, "no memory to receive into");
                }
            }
        });
        match looked {
            Ok(0) if self.stopped => Ok(Pull::End),
            // News came meanwhile: do not sleep.
            Ok(0) if !self.socket.fall_asleep() => Ok(Pull::Ready),
            Ok(0) if self.socket.has_gone() => Err(failure(&SocketError::GONE)),
            Ok(0) => Ok(Pull::Idle(Duration::MAX)),
            Ok(_) => Ok(Pull::Ready),
            Err(SocketError::Reported(_)) => {
                self.reported += 1;
                Ok(Pull::Ready)
            }
            Err(error) => Err(failure(&error)),
        }
    }

    fn bell(&mut self) -> Option<BorrowedFd<'_>> {
        Some(self.bell.as_fd())
    }

    fn clock(&self) -> Option<u64> {
        Some(landing::clock())
    }

    fn stop(&mut self) -> bool {
        self.stopped = true;
        true
    }

    fn finish(&mut self, cx: &mut Context<'_>) {
        self.landing.leave(cx);
        while let Some(oldest) = self.streams.table.oldest(0) {
            self.streams.end(oldest, cx);
        }
        let counts = self.socket.counts();
        let lost: u64 = counts.not_received.iter().map(|(_, count)| count).sum();
        cx.counters.blocks_in += counts.received + lost;
        cx.counters.blocks_taken += counts.received;
        for (why, count) in counts.not_received {
            cx.counters.drops.add(why, count);
        }
        if self.reported > 0 {
            cx.count("errors that the network reported", self.reported);
        }
    }
}
