//! A flow as a sink: sends each message, or each piece of a byte stream, as a datagram.

use super::{failure, open, options};
use filter::prelude::*;
use socket::{SocketError, UdpSocket};
use std::time::{Duration, Instant};

/// Longest wait for room before the sink checks whether the run is to end.
const TURN: Duration = Duration::from_millis(50);

/// At the end, longest wait until the driver has sent the datagrams in the channel: a next hop may not answer any more.
const PATIENCE: Duration = Duration::from_secs(5);

const TOO_LONG: &str = "longer than a datagram of the interface";
const STOPPED: &str = "stopped before the driver had room";

pub(super) fn make(params: &Params, env: &Env) -> Result<Instance, ParamError> {
    if options(params)?.peer.is_none() {
        return Err(ParamError::new("to", "a flow that sends needs a peer").with_help("flow udp to=10.0.0.3:4000"));
    }
    let socket = open(params, env)?;
    let most = socket.longest().max(1);
    let cuts = env.input.has(Type::Bytes);
    Ok(Instance::filter(Sender { socket, most, cuts, message: Vec::new(), reported: 0 }))
}

struct Sender {
    socket: UdpSocket,
    /// Longest payload of a datagram, in bytes.
    most: usize,
    /// Blocks are pieces of streams, and may be cut.
    cuts: bool,
    /// The beginning of a message that has not ended, as long as it may still fit.
    message: Vec<u8>,
    /// Errors that the network reported.
    reported: u64,
}

impl Sender {
    /// Sends a datagram. Returns the reason if it was not sent.
    fn send(&mut self, payload: &[u8], stop: &base::atomic::StopFlag) -> Result<Option<&'static str>, Box<Failure>> {
        loop {
            match self.socket.send(None, payload) {
                Ok(()) => return Ok(None),
                Err(SocketError::Full) if stop.is_set() => return Ok(Some(STOPPED)),
                Err(SocketError::Full) => self.socket.wait(TURN).map_err(|error| failure(&error))?,
                // The error is about an earlier datagram. This one was not sent yet.
                Err(SocketError::Reported(_)) => self.reported += 1,
                Err(SocketError::TooLong) => return Ok(Some(TOO_LONG)),
                Err(error) => return Err(failure(&error)),
            }
        }
    }
}

impl Filter for Sender {
    fn run(&mut self, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
        for (_, block) in batch.iter() {
            let bytes = cx.rings.bytes(block);
            if self.cuts {
                for piece in bytes.chunks(self.most) {
                    if let Some(why) = self.send(piece, cx.stop)? {
                        cx.drop(1, why);
                        break;
                    }
                }
                continue;
            }
            if block.has(Flags::FIRST) {
                self.message.clear();
            }
            let whole = block.has(Flags::FIRST.with(Flags::LAST));
            let sent = if whole {
                self.send(bytes, cx.stop)?
            } else {
                // Keep one byte more than fits: it tells that the message is too long.
                let room = (self.most + 1).saturating_sub(self.message.len());
                self.message.extend_from_slice(&bytes[..bytes.len().min(room)]);
                if !block.has(Flags::LAST) {
                    continue;
                }
                let message = std::mem::take(&mut self.message);
                let sent = self.send(&message, cx.stop)?;
                self.message = message;
                sent
            };
            if let Some(why) = sent {
                cx.drop(1, why);
            }
        }
        Ok(Status::Done)
    }

    fn finish(&mut self, cx: &mut Context<'_>) -> Made {
        let until = Instant::now() + PATIENCE;
        while self.socket.outstanding() > 0 && !cx.stop.is_set() && Instant::now() < until {
            // The daemon has gone, and sends nothing more.
            if self.socket.wait(TURN).is_err() {
                break;
            }
        }
        let unsent = self.socket.outstanding();
        if unsent > 0 {
            cx.notice(format!("flow {}: {unsent} datagrams were not sent when it ended", self.socket.local_addr()));
        }
        for (why, count) in self.socket.counts().not_sent {
            cx.count(why, count);
        }
        if self.reported > 0 {
            cx.count("errors that the network reported", self.reported);
        }
        Ok(Status::Done)
    }
}
