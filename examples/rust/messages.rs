//! Prints the host, status and length of each HTTP response in a capture: a request gives its blocks to a program.
//!
//! `cargo run -p streamline --example messages captures/web.pcap`

use std::collections::{BTreeMap, HashMap};
use streamline::{Error, Session};

/// A message whose end has not come yet.
struct Open {
    host: String,
    status: u64,
    length: usize,
}

fn print_messages(capture: &str) -> Result<(), Error> {
    let variables = BTreeMap::from([("file".to_string(), capture.to_string())]);
    let mut stream = Session::new().stream("pcap $file | http", &variables)?;
    let mut open = HashMap::new();
    while let Some(block) = stream.next()? {
        if let Some(record) = block.record() {
            let host = String::from_utf8_lossy(record.text("http.hostname").unwrap_or(b"-")).into_owned();
            // A request has no status.
            if let Some(status) = record.number("http.status") {
                open.insert(block.class(), Open { host, status, length: 0 });
            }
        } else if let Some(message) = open.get_mut(&block.class()) {
            message.length += block.bytes().len();
        }
        if block.is_last()
            && let Some(Open { host, status, length }) = open.remove(&block.class())
        {
            println!("{host} {status} {length}");
        }
    }
    Ok(())
}

fn main() -> std::process::ExitCode {
    let Some(capture) = std::env::args().nth(1) else {
        eprintln!("usage: messages CAPTURE");
        return 2.into();
    };
    match print_messages(&capture) {
        Ok(()) => 0.into(),
        Err(error) => {
            eprintln!("{error}");
            1.into()
        }
    }
}
