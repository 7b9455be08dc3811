//! FTP (RFC 959): a client's commands, the address of a data connection (also RFC 2428), and control connections.
//! [`reply`](crate::reply) reads replies.

mod conversation;
mod transfers;

pub use conversation::{Conversation, KEPT_BYTES};
pub use transfers::{Announced, Transfer, Transfers};

use crate::conversation::{About, Kind};
use packet::Flow;
use std::net::{IpAddr, Ipv4Addr};

/// A fact about a command or its reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fact {
    /// The command's name, as it was sent.
    Command,
    /// The text behind it.
    Argument,
    /// The port of a data connection: the client's (PORT, EPRT) or the server's (227, 229).
    DynamicPort,
    /// Active if the client says the port, else passive.
    Mode,
    /// A line of the reply.
    Reply,
    /// The code of a line that has one.
    Code,
    /// Yes or no.
    IsAnswered,
}

impl crate::conversation::Fact for Fact {
    const ALL: &'static [About] = &[
        About::client("ftp.command", "ftp.command", Kind::Text),
        About::client("ftp.command_data", "ftp.command_data", Kind::Text),
        About::both("ftp.dynamic_port", "ftp.dynamic_port", Kind::Number),
        About::both("ftp.mode", "", Kind::Text),
        About::server("ftp.reply", "ftp.reply", Kind::Item),
        About::server("ftp.completion_code", "ftp.completion_code", Kind::Item),
        About::server("ftp.reply_received", "", Kind::Text),
    ];

    fn number(self) -> usize {
        self as usize
    }
}

/// Maximum length of a command's name; those in RFCs have four letters.
const COMMAND_LIMIT: usize = 16;

/// Commands that clients begin with.
const FIRST: [&str; 14] =
    ["USER", "AUTH", "FEAT", "SYST", "OPTS", "HOST", "CLNT", "ACCT", "PASS", "REIN", "PASV", "EPSV", "PORT", "PROT"];

/// A command and its argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command<'a> {
    /// Its name, as it was sent.
    pub name: &'a [u8],
    /// The text behind the name.
    pub argument: &'a [u8],
}

impl<'a> Command<'a> {
    /// Whether it is the command `name` (in capitals).
    pub fn is(&self, name: &str) -> bool {
        self.name.eq_ignore_ascii_case(name.as_bytes())
    }

    /// Whether a client may begin with it.
    pub fn may_be_first(&self) -> bool {
        FIRST.into_iter().any(|name| self.is(name))
    }

    /// Whether it transfers a file or a list over a data connection.
    pub fn transfers(&self) -> bool {
        ["RETR", "STOR", "STOU", "APPE", "LIST", "NLST", "MLSD"].into_iter().any(|name| self.is(name))
    }
}

/// Whether a port says that it is another protocol: clients of POP3 (110) and IRC (6667) begin with USER and PASS, too.
pub fn is_of_another(flow: &Flow) -> bool {
    [flow.source_port, flow.target_port].into_iter().any(|port| matches!(port, 110 | 6667))
}

/// Reads a line of a client without its end; `None` if it is no command.
pub fn command(line: &[u8]) -> Option<Command<'_>> {
    let end = line.iter().position(|byte| *byte == b' ').unwrap_or(line.len());
    let name = &line[..end];
    let is_name = (3..=COMMAND_LIMIT).contains(&end) && name.iter().all(u8::is_ascii_alphabetic);
    is_name.then(|| Command { name, argument: line[end..].trim_ascii() })
}

/// The port, and perhaps the address, that a data connection goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// `None`: the address of the control connection.
    pub address: Option<IpAddr>,
    /// The port.
    pub port: u16,
}

/// The endpoint in the argument of PORT or the text of a reply 227: `h1,h2,h3,h4,p1,p2`, perhaps in parentheses.
pub fn endpoint(text: &[u8]) -> Option<Endpoint> {
    let start = text.iter().rposition(|byte| *byte == b'(').map_or(0, |at| at + 1);
    let text = text.get(start..)?;
    let from = text.iter().position(u8::is_ascii_digit)?;
    let mut numbers = text[from..].split(|byte| *byte == b',').map(|number| {
        let end = number.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(number.len());
        std::str::from_utf8(&number[..end]).ok()?.parse::<u8>().ok()
    });
    let mut next = || numbers.next().flatten();
    let address = Ipv4Addr::new(next()?, next()?, next()?, next()?);
    let port = u16::from_be_bytes([next()?, next()?]);
    Some(Endpoint { address: Some(address.into()), port })
}

/// The endpoint in the argument of EPRT (`|1|192.0.2.1|2000|`) or the text of a reply 229 (`(
/// |2000|)`).
pub fn extended_endpoint(text: &[u8]) -> Option<Endpoint> {
    let start = text.iter().rposition(|byte| *byte == b'(').map_or(0, |at| at + 1);
    let (separator, rest) = text.get(start..)?.split_first()?;
    let mut fields = rest.split(|byte| byte == separator).map(|field| std::str::from_utf8(field).unwrap_or_default());
    let (_family, address, port) = (fields.next()?, fields.next()?, fields.next()?);
    let address = if address.is_empty() { None } else { Some(address.parse().ok()?) };
    Some(Endpoint { address, port: port.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn commands() {
        let check = |line: &[u8], expected: Option<(&[u8], &[u8])>| {
            assert_eq!(command(line), expected.map(|(name, argument)| Command { name, argument }), "{line:?}");
        };
        check(b"USER anonymous", Some((b"USER", b"anonymous")));
        check(b"pasv", Some((b"pasv", b"")));
        check(b"\x16\x03\x01", None);
        check(b"GET/ HTTP", None);
        check(b"", None);
        assert!(command(b"retr a").unwrap().transfers() && !command(b"USER a").unwrap().transfers());
    }

    #[test]
    fn places() {
        let at = |address: Option<[u8; 4]>, port: u16| Some(Endpoint { address: address.map(IpAddr::from), port });
        let check = |text: &[u8], expected: Option<Endpoint>| assert_eq!(endpoint(text), expected, "{text:?}");
        check(b"192,0,2,1,7,208", at(Some([192, 0, 2, 1]), 2000));
        check(b"Entering Passive Mode (192,0,2,1,7,208).", at(Some([192, 0, 2, 1]), 2000));
        check(b"= 192,0,2,1,7,208", at(Some([192, 0, 2, 1]), 2000));
        check(b"192,0,2,1,7,256", None);
        check(b"192,0,2,1,7", None);
        check(b"(", None);
        let check = |text: &[u8], expected: Option<Endpoint>| assert_eq!(extended_endpoint(text), expected, "{text:?}");
        check(b"Entering Extended Passive Mode (|||2000|)", at(None, 2000));
        check(b"|1|192.0.2.1|2000|", at(Some([192, 0, 2, 1]), 2000));
        check(b"|2|2001:db8::1|80|", Some(Endpoint { address: Some("2001:db8::1".parse().unwrap()), port: 80 }));
        check(b"|1|x|2000|", None);
        check(b"(", None);
    }

    proptest! {
        #[test]
        fn any_line(line in proptest::collection::vec(any::<u8>(), 0..60)) {
            let _ = (endpoint(&line), extended_endpoint(&line));
            prop_assert!(command(&line).is_none_or(|command| command.argument.len() < line.len()));
        }
    }
}
