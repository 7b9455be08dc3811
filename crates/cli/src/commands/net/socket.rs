//! The parts that `net cat` and `net echo` share: opening the flow, and sleeping.

use super::tcp::FlowArgs;
use crate::exit::{CommandError, Outcome};
use rustix::event::{PollFd, PollFlags, Timespec};
use socket::{Connection, SocketError, UdpOptions, UdpSocket};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The socket of a command.
#[derive(clap::Args)]
pub(super) struct SocketArgs {
    /// The protocol
    #[arg(value_name = "PROTOCOL")]
    pub(super) protocol: Protocol,

    /// The local port; any that is free if not given
    #[arg(value_name = "PORT", default_value_t = 0)]
    pub(super) port: u16,

    /// The blocks of the protocol stack of UDP, the application's end first; the command completes the rest
    #[arg(long, value_name = "TEXT")]
    pub(super) stack: Option<String>,

    #[command(flatten)]
    pub(super) flow: FlowArgs,
}

/// The protocol of a socket.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Protocol {
    /// Datagrams.
    Udp,
    /// Connections.
    Tcp,
}

impl SocketArgs {
    /// Connections cannot have their own stack here.
    pub(super) fn refuse_stack(&self) -> Outcome {
        match self.stack {
            None => Ok(()),
            Some(_) => Err(CommandError::Wrong(
                "--stack is for udp; `streamline net trace` shows the packets of a connection".into(),
            )),
        }
    }

    /// Opens a UDP flow. With `peer`, it exchanges datagrams only with that peer.
    pub(super) fn open(&self, peer: Option<SocketAddr>, purpose: &str) -> Result<UdpSocket, CommandError> {
        let options = UdpOptions {
            device: self.flow.device.clone(),
            address: self.flow.addr,
            port: self.port,
            peer,
            stack: self.stack.clone(),
            share: self.flow.slice.clone(),
            on_change: None,
        };
        // If there is no daemon, the error says how to start one.
        drop(crate::daemon_client::connect(&self.flow.daemon.path(), purpose)?);
        let connection = Connection::open(&self.flow.daemon.path(), purpose).map_err(failed)?;
        UdpSocket::open(Arc::new(connection), &options, &mut Files).map_err(failed)
    }
}

/// The error message for people.
pub(super) fn failed(error: SocketError) -> CommandError {
    match error {
        SocketError::Stack { error, text } => {
            let drawn = error.render(&text, "stack");
            CommandError::Wrong(drawn.trim_start_matches("error: ").trim_end().to_string())
        }
        SocketError::Mismatch(text) => CommandError::Wrong(text),
        other => CommandError::Failed(other.to_string()),
    }
}

/// Sleeps until the flow has news, `input` can be read, `timeout` is over or a signal comes. Returns whether `input`
/// can be read.
pub(super) fn sleep(
    socket: &mut UdpSocket,
    input: Option<BorrowedFd<'_>>,
    timeout: Duration,
) -> Result<bool, CommandError> {
    let can_sleep = socket.fall_asleep();
    let timeout = Timespec::try_from(if can_sleep { timeout } else { Duration::ZERO }).ok();
    let mut fds = vec![
        PollFd::from_borrowed_fd(socket.fd(), PollFlags::IN),
        PollFd::from_borrowed_fd(socket.line(), PollFlags::IN),
    ];
    fds.extend(input.map(|input| PollFd::from_borrowed_fd(input, PollFlags::IN)));
    let polled = rustix::event::poll(&mut fds, timeout.as_ref());
    let seen: Vec<bool> = fds.iter().map(|fd| polled.is_ok() && !fd.revents().is_empty()).collect();
    let is_over = seen[1] || fds[0].revents().contains(PollFlags::HUP);
    drop(fds);
    socket.awake();
    // If the driver gave a reason, the flow's own error reports it.
    if is_over && socket.is_open() {
        return Err(CommandError::Failed("the daemon has gone, and the flow with it".into()));
    }
    Ok(seen.get(2) == Some(&true))
}

pub(super) fn tell_losses(socket: &UdpSocket) {
    let counts = socket.counts();
    for (how, reasons) in [("received", counts.not_received), ("sent", counts.not_sent)] {
        for (why, count) in reasons {
            tell!("note: {count} packets were not {how}: {why}");
        }
    }
}

/// Opens the capture files of a stack's `tap` blocks.
struct Files;

impl stack::Env for Files {
    fn program(
        &mut self,
        expression: Option<&str>,
        _link: packet::LinkType,
    ) -> Result<Vec<program::cbpf::Instruction>, String> {
        Err(format!(
            "`bpf {}` needs a request: streamline run 'flow udp ... stack=\"...\"'",
            expression.unwrap_or_default()
        ))
    }

    fn tap(&mut self, path: &str) -> Result<stack::TapFile, String> {
        let file = File::create(path).map_err(|error| format!("{path}: {error}"))?;
        let epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let epoch_ns = u64::try_from(epoch.as_nanos()).unwrap_or(u64::MAX);
        Ok(stack::TapFile { sink: Box::new(Capture(BufWriter::new(file))), epoch_ns })
    }
}

struct Capture(BufWriter<File>);

impl stack::TapSink for Capture {
    fn write(&mut self, parts: &[&[u8]]) {
        // A failed write ends the capture; the flow goes on.
        let _ = parts.iter().try_for_each(|part| self.0.write_all(part));
    }
}
