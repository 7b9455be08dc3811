//! Requests over files, read like a handle reads them.

use super::*;
use capture::reader::Found;
use capture::{CaptureReader, CaptureRequest};
use packet::LinkType;
use packet::pcapng::{Description, PacketBlock, Section, write_interface, write_packet, write_section};

fn capture(links: &[LinkType]) -> tempfile::NamedTempFile {
    let mut bytes = Vec::new();
    write_section(&mut bytes, &Section::default());
    for (number, link) in links.iter().enumerate() {
        write_interface(&mut bytes, &Description { link: *link, snap_len: 0, name: "", description: "", filter: "" });
        let data = [number as u8; 60];
        let interface = number as u32;
        write_packet(&mut bytes, &PacketBlock { interface, wire_len: 60, data: &data, ..PacketBlock::default() });
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), bytes).unwrap();
    file
}

/// Reads a request to its end. Returns the link type, the first byte of each packet, and the error.
fn read(source: &str) -> Result<(u16, Vec<u8>, Option<String>), CaptureError> {
    let request = Request::start(source, Form::AsTheyCome, 0)?;
    let mut reader = CaptureReader::new(request.registry().open(&CaptureRequest::default(), 0)?, None, None).unwrap();
    // Packets that came before the exchange are not lost.
    let exchange = request.registry().exchange(reader.id(), &[])?;
    reader.exchange(exchange, None);
    request.want();
    let (mut firsts, mut buffer) = (Vec::new(), [0; 60]);
    loop {
        let ended = request.has_ended();
        match reader.look() {
            Found::Packet(packet) => {
                assert_eq!(reader.take_copy(&packet, &mut buffer), Some(60));
                firsts.push(buffer[0]);
            }
            Found::Nothing if ended => break,
            Found::Nothing => std::thread::yield_now(),
        }
    }
    Ok((reader.device().link_type, firsts, request.failure()))
}

#[test]
fn the_first_frame_tells_the_link_type_and_another_ends_it() {
    let ethernet = LinkType(1);
    let raw = LinkType(101);
    let rows: [(&[LinkType], u16, &[u8], &str); 4] = [
        (&[ethernet, ethernet], 1, &[0, 1], ""),
        (&[raw], 101, &[0], ""),
        (&[], 1, &[], ""),
        (&[raw, raw, ethernet, raw], 101, &[0, 1], "link type 1 came, on a device that has link type 101"),
    ];
    for (links, link, firsts, failure) in rows {
        let file = capture(links);
        let got = read(&format!("pcap {}", file.path().display())).unwrap();
        assert_eq!((got.0, &got.1[..]), (link, firsts), "{links:?}");
        let said = got.2.unwrap_or_default();
        assert!(said.contains(failure) && said.is_empty() == failure.is_empty(), "{said}");
    }
}

#[test]
fn what_cannot_be_run_is_told_at_once() {
    for (source, expected) in [("pcap /none/such.pcap", "such.pcap"), ("pcap x | nonsense", "nonsense"), ("|", "")] {
        let Err(error) = Request::start(source, Form::AsTheyCome, 0) else { panic!("{source} runs") };
        assert!(error.text.contains(expected), "{error}");
    }
}

#[test]
fn a_handle_that_is_closed_early_ends_the_thread() {
    let file = capture(&[LinkType(1); 3]);
    let request = Request::start(&format!("pcap {} follow=yes", file.path().display()), Form::AsTheyCome, 0).unwrap();
    let shared = Arc::clone(&request.shared);
    drop(request);
    assert!(shared.lock().end.is_some());
}
