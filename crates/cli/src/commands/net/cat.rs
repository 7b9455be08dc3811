//! `streamline net cat`: sends standard input to a flow, and writes to standard output what it receives. This file has
//! datagrams; `cat/connection.rs` has connections.
//! `cat/connection.rs`.

mod connection;

use super::parse;
use super::socket::{Protocol, SocketArgs, failed, sleep, tell_losses};
use crate::exit::{CommandError, Outcome};
use crate::signals::{self, Finishing};
use base::atomic::StopFlag;
use socket::{SocketError, UdpSocket};
use std::io::{self, ErrorKind, Write};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// Send standard input to a peer, and write its data to standard output
///
/// `udp`: The command sends each piece that it reads as a datagram. Without --to, datagrams go to the sender of the last one; standard
/// input waits for the first. It ends with Ctrl-C, or `--wait` after the end of the input.
///
/// `tcp`: The command connects, or accepts one connection if --to is not given. The end of standard input finishes its side. It ends
/// with Ctrl-C, when both sides have finished (where it accepted: when the peer has), or `--wait` after the end of the input.
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    #[command(flatten)]
    socket: SocketArgs,

    /// The only peer; without it, datagrams from all are received, or a connection is awaited
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = parse::endpoint)]
    to: Option<SocketAddr>,

    /// Seconds to go on receiving after the end of standard input; 1 for udp, and for tcp no limit if not given
    #[arg(long, value_name = "SECONDS", value_parser = parse::seconds)]
    wait: Option<Duration>,
}

/// How long the command waits at its end for the driver to send the channel's remaining packets.
const PATIENCE: Duration = Duration::from_secs(5);

const AFTER_HELP: &str = "\
Examples:
  streamline net cat udp 4000                            listens, and answers who speaks
  echo hello | streamline net cat udp --to 10.0.0.1:7
  echo hello | streamline net cat udp --to [fd00::1]:7
  streamline net cat tcp 4000 > file                     accepts one connection
  streamline net cat tcp --to 10.0.0.1:4000 < file";

/// How long datagrams are received after the end of the input.
const WAIT: Duration = Duration::from_secs(1);

pub(crate) fn run(args: &Args) -> Outcome {
    match args.socket.protocol {
        Protocol::Udp => datagrams(args, args.wait.unwrap_or(WAIT)),
        Protocol::Tcp => connection::run(args, args.wait),
    }
}

fn datagrams(args: &Args, wait: Duration) -> Outcome {
    let stop = StopFlag::new();
    signals::listen(&stop, Finishing::Untold)?;
    let mut socket = args.socket.open(args.to, "streamline net cat")?;
    let (input, mut output) = (io::stdin(), io::stdout().lock());
    let most = socket.longest().max(1);
    let (mut peer, mut ended, mut buffer) = (args.to, None, vec![0; most]);
    while !stop.is_set() {
        let mut written = Ok(());
        let looked = socket.receive(64, &mut |datagram| {
            peer = args.to.or(Some(datagram.from));
            if written.is_ok() {
                written = output.write_all(datagram.payload);
            }
        });
        match written.and_then(|()| output.flush()) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::BrokenPipe => break,
            Err(error) => return Err(CommandError::Failed(format!("standard output: {error}"))),
        }
        match looked {
            Ok(0) => {}
            Ok(_) => continue,
            Err(SocketError::Reported(errno)) => {
                tell!("warning: {}", io::Error::from_raw_os_error(errno));
                continue;
            }
            Err(error) => return Err(failed(error)),
        }
        let left = ended.map(|ended: Instant| wait.saturating_sub(ended.elapsed()));
        let waited = ended.map(|ended: Instant| ended.elapsed());
        let outstanding = socket.outstanding();
        if left == Some(Duration::ZERO) && (outstanding == 0 || waited > Some(wait + PATIENCE)) {
            if outstanding > 0 {
                tell!("note: {outstanding} datagrams were not sent: the interface does not take them");
            }
            break;
        }
        // Without a peer, the input waits.
        let reads = (ended.is_none() && peer.is_some()).then(|| input.as_fd());
        let timeout = left.map_or(Duration::from_secs(3600), |left| left.max(Duration::from_millis(1)));
        if !sleep(&mut socket, reads, timeout)? {
            continue;
        }
        match rustix::io::read(&input, &mut buffer) {
            Ok(0) => ended = Some(Instant::now()),
            Ok(len) => send(&mut socket, peer, &buffer[..len], &stop)?,
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
            Err(error) => return Err(CommandError::Failed(format!("standard input: {error}"))),
        }
    }
    tell_losses(&socket);
    Ok(())
}

fn send(socket: &mut UdpSocket, to: Option<SocketAddr>, payload: &[u8], stop: &StopFlag) -> Outcome {
    loop {
        match socket.send(to, payload) {
            Ok(()) => return Ok(()),
            Err(SocketError::Full) if stop.is_set() => return Ok(()),
            Err(SocketError::Full) => socket.wait(Duration::from_millis(100)).map_err(failed)?,
            Err(SocketError::Reported(errno)) => tell!("warning: {}", io::Error::from_raw_os_error(errno)),
            Err(error) => return Err(failed(error)),
        }
    }
}
