//! Prints the method and URL of each HTTP request in a byte stream that this program reads: a program gives its bytes to a
//! request.
//!
//! `printf 'GET /a HTTP/1.1\r\nHost: b\r\n\r\n' | cargo run -p streamline --example push`

use std::error::Error;
use std::io::Read;
use streamline::{Session, Stream};

fn print_requests(stream: &mut Stream) -> Result<(), Box<dyn Error>> {
    while let Some(block) = stream.next()? {
        if let Some(record) = block.record() {
            let text = |name| String::from_utf8_lossy(record.text(name).unwrap_or(b"-"));
            println!("{} {}", text("http.http_method"), text("http.url"));
        }
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut stream = Session::new().stream("push_bytes | http", &Default::default())?;
    let (mut input, mut bytes) = (std::io::stdin().lock(), [0; 4096]);
    loop {
        let read = input.read(&mut bytes)?;
        if read == 0 {
            break;
        }
        stream.push(&bytes[..read])?;
        print_requests(&mut stream)?;
    }
    stream.end()?;
    print_requests(&mut stream)
}
