//! Feeds random, changed and cut bytes to the parsers. Each call must end in a value or an error.

use packet::frame;
use proptest::prelude::*;
use protocols::dns::{self, Data, Message};
use protocols::tls::{self, Hello};

use crate::shared::captures;

fn read_dns(bytes: &[u8]) {
    let _ = dns::is_plausible(bytes, bytes.len() as u32);
    let _ = dns::split_tcp(bytes);
    let Ok(message) = Message::new_checked(bytes) else { return };
    let mut names = Vec::new();
    for question in message.questions().flatten() {
        names.push(question.name);
    }
    let mut count = 0;
    for record in message.records().flatten() {
        count += 1;
        names.push(record.name);
        match record.data {
            Data::Name(name) | Data::Mx { exchange: name, .. } | Data::Srv { target: name, .. } => names.push(name),
            Data::Soa { server, mailbox, .. } => names.extend([server, mailbox]),
            Data::Txt(strings) => assert!(strings.map(<[u8]>::len).sum::<usize>() <= bytes.len()),
            Data::Service { target, params, .. } => {
                names.push(target);
                assert!(params.count() <= bytes.len() / 4);
            }
            Data::Naptr { replacement, .. } => names.push(replacement),
            Data::A(_) | Data::Aaaa(_) | Data::Digest { .. } | Data::Caa { .. } | Data::Other(_) => {}
        }
    }
    assert!(count <= bytes.len() / 11);
    for name in names {
        let mut text = Vec::new();
        let _ = name.append_to(&mut text);
        assert!(text.len() <= 4 * dns::NAME_LIMIT && text.iter().all(|byte| (0x20..=0x7e).contains(byte)));
    }
}

fn read_tls(bytes: &[u8]) {
    let mut scratch = Vec::new();
    match tls::hello(bytes, &mut scratch) {
        Ok(Hello::Client(client)) => {
            let lists = client.cipher_suites().count() + client.supported_versions().count();
            assert!(lists + client.extensions().count() + client.application_protocols().count() <= 2 * bytes.len());
            assert!(client.server_name().is_none_or(|name| name.len() < bytes.len()));
        }
        Ok(Hello::Server(server)) => {
            let _ = (server.version(), server.application_protocol());
        }
        Err(tls::Stop::Incomplete { need }) => {
            assert!(need > bytes.len() && need <= bytes.len() + tls::HELLO_LIMIT + 9)
        }
        Err(_) => {}
    }
}

/// A response with two records.
const DNS: &[u8] = b"\x12\x34\x81\x80\0\x01\0\x02\0\0\0\0\x03www\x01a\0\0\x01\0\x01\
    \xc0\x0c\0\x01\0\x01\0\0\0\x3c\0\x04\x0a\0\0\x01\xc0\x0c\0\x0f\0\x01\0\0\0\x3c\0\x06\0\x01\x01m\xc0\x10";

/// A hello of a client, for the server `a`.
const TLS: &[u8] = b"\x16\x03\x01\0\x39\x01\0\0\x35\x03\x0301234567890123456789012345678901\0\0\x02\x13\x01\x01\0\
    \0\x0a\0\0\0\x06\0\x04\0\0\x01a";

/// Writes each value to its place; places beyond the end wrap around.
fn change(bytes: &mut [u8], changes: &[(usize, u8)]) {
    for &(place, value) in changes {
        if let Some(last) = bytes.len().checked_sub(1) {
            bytes[place % (last + 1)] = value;
        }
    }
}

/// The messages to be changed are valid at first, so that the changes reach deep.
#[test]
fn sound_messages_are_read() {
    assert!(dns::is_plausible(DNS, DNS.len() as u32));
    assert_eq!(Message::new_checked(DNS).unwrap().records().flatten().count(), 2);
    let mut scratch = Vec::new();
    let hello = tls::hello(TLS, &mut scratch);
    assert!(matches!(hello, Ok(Hello::Client(client)) if client.server_name() == Some(b"a")), "{hello:?}");
}

/// Cuts real payloads and changes two bytes of each, one of them near its start. The places depend on the frame's number
/// only, so failures are repeatable.
#[test]
fn changed_captures() {
    const FRAMES_EACH: usize = 300;
    for capture in captures() {
        for (index, packet) in capture.packets.iter().take(FRAMES_EACH).enumerate() {
            let data = capture.data(packet);
            let Ok(frame) = frame::parse(packet.link, data, packet.record.wire_len) else { continue };
            let mut bytes = match (frame.tcp(data), frame.udp(data)) {
                (Ok(tcp), _) => tcp.payload().to_vec(),
                (_, Ok(udp)) => udp.payload().to_vec(),
                _ => continue,
            };
            let noise = (index as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let place = |shift: u32, bound: usize| (noise >> shift) as usize % bound;
            change(&mut bytes, &[(place(8, 40), noise as u8), (place(16, 1600), (noise >> 40) as u8)]);
            for length in [bytes.len(), place(24, 1600)] {
                bytes.truncate(length);
                read_dns(&bytes);
                read_tls(&bytes);
            }
        }
    }
}

fn changes() -> impl Strategy<Value = Vec<(usize, u8)>> {
    prop::collection::vec((0_usize..4096, any::<u8>()), 0..6)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn changed_messages(changes in changes(), keep in 0_usize..100) {
        for message in [DNS, TLS] {
            let mut bytes = message.to_vec();
            change(&mut bytes, &changes);
            bytes.truncate(keep);
            read_dns(&bytes);
            read_tls(&bytes);
        }
    }

    #[test]
    fn random_messages(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        read_dns(&bytes);
        read_tls(&bytes);
        read_tls(&[&[22, 3, 1, 1, 0, 1, 0, 0, 250], &bytes[..]].concat());
    }

    /// Small numbers, which look like labels, counts and pointers.
    #[test]
    fn dns_like_messages(bytes in prop::collection::vec(prop::sample::select(&[0_u8, 1, 2, 12, 16, 40, 63, 0xc0, 0xff][..]), 0..300)) {
        read_dns(&bytes);
        let header = [0, 0, 0x80, 0, 0, 1, 0, 9, 0, 9, 0, 9];
        read_dns(&[&header, &bytes[..]].concat());
    }
}
