//! `streamline net echo`: sends back all data that it receives. This file has datagrams; `echo/connections.rs` has connections.

mod connections;

use super::socket::{Protocol, SocketArgs, failed, sleep, tell_losses};
use crate::exit::Outcome;
use crate::signals::{self, Finishing};
use base::atomic::StopFlag;
use socket::SocketError;
use std::net::SocketAddr;
use std::time::Duration;

/// Send back each datagram, or all data of each connection
///
/// Runs until Ctrl-C. Its protocol stack runs in this process; the daemon owns the interface.
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    #[command(flatten)]
    socket: SocketArgs,
}

const AFTER_HELP: &str = "\
Examples:
  streamline net echo udp 7
  streamline net echo tcp 7
  streamline net echo udp 4000 --stack 'udp 4000 | ipv4 | tap packets.pcap'";

/// The most datagrams that wait for room to be sent back. The command receives no others meanwhile.
const WAITING: usize = 64;

pub(crate) fn run(args: &Args) -> Outcome {
    match args.socket.protocol {
        Protocol::Udp => datagrams(args),
        Protocol::Tcp => connections::run(args),
    }
}

fn datagrams(args: &Args) -> Outcome {
    let stop = StopFlag::new();
    signals::listen(&stop, Finishing::Untold)?;
    let mut socket = args.socket.open(None, "streamline net echo")?;
    tell!("{} echoes: {}", socket.local_addr(), socket.stack_text());
    let mut waiting: Vec<(SocketAddr, Vec<u8>)> = Vec::new();
    while !stop.is_set() {
        let looked =
            match socket.receive(WAITING, &mut |datagram| waiting.push((datagram.from, datagram.payload.to_vec()))) {
                Ok(looked) => looked,
                // The peer has gone.
                Err(SocketError::Reported(_)) => continue,
                Err(error) => return Err(failed(error)),
            };
        for (from, payload) in waiting.drain(..) {
            send(&mut socket, from, &payload, &stop)?;
        }
        if looked == 0 {
            sleep(&mut socket, None, Duration::from_secs(3600))?;
        }
    }
    tell_losses(&socket);
    Ok(())
}

fn send(socket: &mut socket::UdpSocket, to: SocketAddr, payload: &[u8], stop: &StopFlag) -> Outcome {
    loop {
        match socket.send(Some(to), payload) {
            Err(SocketError::Full) if !stop.is_set() => socket.wait(Duration::from_millis(100)).map_err(failed)?,
            Err(SocketError::Reported(_)) => {}
            Ok(()) | Err(SocketError::Full | SocketError::TooLong) => return Ok(()),
            Err(error) => return Err(failed(error)),
        }
    }
}
