//! `streamline net echo tcp`: sends back the data of each connection, on a thread per connection.

use super::Args;
use crate::commands::net::tcp;
use crate::exit::Outcome;
use crate::signals::{self, Finishing};
use base::atomic::StopFlag;
use socket::net::{TcpListener, TcpStream};
use std::io::{self, Read, Write};
use std::sync::Arc;
use std::time::Duration;

/// The most connections at a time. More connections wait at the listener.
const MOST: usize = 256;

/// The pause after an error of the listener, and while [`MOST`] connections are open.
const PAUSE: Duration = Duration::from_millis(100);

const PIECE: usize = 64 << 10;

pub(super) fn run(args: &Args) -> Outcome {
    args.socket.refuse_stack()?;
    let stop = StopFlag::new();
    signals::listen(&stop, Finishing::Untold)?;
    let listener = tcp::listen(&args.socket.flow, args.socket.port, "streamline net echo")?;
    tell!("{} echoes", listener.local_addr()?);
    std::thread::Builder::new().name("accept".into()).spawn(move || accept(&listener))?;
    signals::wait(&stop)?;
    Ok(())
}

/// Accepts connections until the process ends.
fn accept(listener: &TcpListener) {
    // Each open connection holds a clone, so the count of clones is the count of connections.
    let place = Arc::new(());
    let mut told = None;
    loop {
        if Arc::strong_count(&place) > MOST {
            std::thread::sleep(PAUSE);
            continue;
        }
        let held = Arc::clone(&place);
        let echoed = listener.accept().and_then(|(stream, _)| {
            let echo = move || {
                // A reset by the peer is no error.
                let _ = echo(&stream);
                drop(held);
            };
            std::thread::Builder::new().name("connection".into()).spawn(echo).map(drop)
        });
        if let Err(error) = echoed {
            if told.replace(error.kind()) != Some(error.kind()) {
                tell!("warning: a connection was not accepted: {error}");
            }
            std::thread::sleep(PAUSE);
        }
    }
}

fn echo(mut stream: &TcpStream) -> io::Result<()> {
    let mut buffer = vec![0; PIECE];
    loop {
        match stream.read(&mut buffer)? {
            0 => return Ok(()),
            len => stream.write_all(&buffer[..len])?,
        }
    }
}
