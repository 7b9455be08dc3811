//! FTP for rules: a transaction for each command, with its replies.

use super::exchanges::{Exchanges, Names};
use super::transactions::Transactions;
use base::limits::RULES_BODY_BYTES;
use protocols::app::App;
use protocols::carry::Carried;
use protocols::conversation::{Ear, Fact as _, How, Id, Run, Side, Talk};
use protocols::ftp::{Announced, Conversation, Fact, KEPT_BYTES, Transfer};
use rules::names::{Buffer, Number};
use std::net::{IpAddr, SocketAddr};

pub(super) const NAMES: &Names = &Names::new(Fact::ALL);

/// Bytes of a command's replies beyond which those that rules have seen are forgotten.
const SEEN_REPLY_BYTES: usize = RULES_BODY_BYTES;
/// Most bytes kept of a command's replies.
const REPLY_BYTES: usize = 4 * RULES_BODY_BYTES;
/// Bytes that a reply counts beside its text.
const REPLY_ENTRY_BYTES: usize = 64;
/// Most ports of data connections kept of a command.
const PORTS: usize = 16;
#[derive(Debug)]
pub(super) struct Stream {
    conversation: Conversation,
    kept: Carried,
    heard: Heard,
}

/// Earlier facts that matter later.
#[derive(Debug, Default)]
struct Heard {
    exchanges: Exchanges,
    /// The exchange that the server replies to, and the bytes of its replies.
    replies: (u64, usize),
    announced: Announced,
}

/// Puts what it hears into transactions.
struct Listener<'a> {
    heard: &'a mut Heard,
    to: &'a mut Transactions,
}

impl Listener<'_> {
    /// Returns whether there is room for a line of a reply.
    fn has_room(&mut self, id: Id, one: u64, bytes: usize) -> bool {
        let replies = &mut self.heard.replies;
        if replies.0 != id.exchange {
            *replies = (id.exchange, 0);
        }
        let names = [Buffer::FTP_REPLY, Buffer::FTP_COMPLETION_CODE];
        if replies.1 >= SEEN_REPLY_BYTES && self.to.forget_shown(one, false, &names) {
            replies.1 = 0;
        }
        let has_room = replies.1 < REPLY_BYTES;
        if has_room {
            replies.1 += bytes + REPLY_ENTRY_BYTES;
        }
        has_room
    }

    fn leave_out(&mut self) {
        self.to.given_up += 1;
        self.to.unseen = true;
    }
}

impl Ear<Fact> for Listener<'_> {
    fn begin(&mut self, id: Id) {
        let one = self.heard.exchanges.transaction(id.exchange, App::Ftp, self.to);
        if let Some(one) = self.to.get(one) {
            // Nothing asked for a reply with which the exchange begins.
            one.complete[0] = !id.side.is_client();
        }
    }

    fn fact(&mut self, id: Id, fact: Fact, value: &[u8]) {
        self.heard.announced.fact(id, fact, value);
        let Some(number) = self.heard.exchanges.find(id.exchange, self.to) else { return };
        if !id.side.is_client() && !self.has_room(id, number, value.len()) {
            return self.leave_out();
        }
        if let Some(one) = self.to.get(number) {
            NAMES.put(one, fact.number(), id.side.is_client(), value);
            // Rules ask whether a command was answered; a greeting answers none.
            if fact == Fact::Reply && one.first(Buffer::FTP_COMMAND, true).is_some() {
                one.put_number_once(Number::FTP_REPLY_RECEIVED, false, 1);
            }
        }
        self.to.change(number, id.side.is_client());
    }

    fn number(&mut self, id: Id, _fact: Fact, port: u64) {
        let Some(number) = self.heard.exchanges.find(id.exchange, self.to) else { return };
        let Some(one) = self.to.get(number) else { return };
        if one.numbers(Number::FTP_DYNAMIC_PORT, id.side.is_client()).count() == PORTS {
            return self.leave_out();
        }
        // The server's port belongs to the command's side too.
        one.put_number_once(Number::FTP_DYNAMIC_PORT, true, port);
        if !id.side.is_client() {
            one.put_number_once(Number::FTP_DYNAMIC_PORT, false, port);
        }
        self.to.change(number, true);
    }

    fn address(&mut self, id: Id, address: SocketAddr) {
        self.heard.announced.address(id, address);
    }

    fn odd(&mut self, id: Id, event: &'static str) {
        if let Some(one) = self.heard.exchanges.find(id.exchange, self.to).and_then(|one| self.to.get(one)) {
            one.put_event(event, id.side.is_client());
        }
    }

    fn end(&mut self, id: Id, _how: How) {
        if let Some(one) = self.heard.exchanges.find(id.exchange, self.to) {
            self.to.complete(one, id.side.is_client());
        }
    }
}

impl Stream {
    pub fn new(client: IpAddr, server: IpAddr) -> Stream {
        let conversation = Conversation::between(client, server, true);
        Stream { conversation, kept: Carried::new(KEPT_BYTES), heard: Heard::default() }
    }

    pub fn feed(&mut self, side: Side, run: Run<'_>, gap: bool, to: &mut Transactions) {
        let Stream { conversation, kept, heard } = self;
        let mut ear = Listener { heard, to };
        if gap {
            conversation.gap(side, 1, kept, &mut ear);
        }
        conversation.feed(side, run, kept, &mut ear);
    }

    /// Takes the data connections announced since the last call.
    pub fn announced(&mut self) -> impl Iterator<Item = (SocketAddr, Transfer)> {
        self.heard.announced.list.drain(..)
    }

    pub fn kept_bytes(&self) -> usize {
        self.kept.bytes()
    }
}

/// Begins the only transaction of a data connection.
pub(super) fn data(transfer: &Transfer, to: &mut Transactions) -> u64 {
    let one = to.begin(App::FtpData);
    let id = one.id;
    one.is_one = true;
    let command = match &transfer.command.to_ascii_uppercase()[..] {
        b"RETR" => Some(1),
        b"STOR" => Some(2),
        _ => None,
    };
    for side in [true, false] {
        if let Some(command) = command {
            one.put_number(Number::FTPDATA_COMMAND, side, command);
        }
        if !transfer.file.is_empty() {
            one.put_copy(Buffer::FILE_NAME, side, &transfer.file);
        }
    }
    [true, false].into_iter().for_each(|side| to.change(id, side));
    id
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn replies_of_one_command_are_bounded() {
        let place = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let (mut stream, mut to) = (Stream::new(place, place), Transactions::default());
        let mut feed = |side, bytes: &[u8], to: &mut Transactions| stream.feed(side, Run { bytes, time: 0 }, false, to);
        feed(Side::Client, b"USER a\r\n", &mut to);
        feed(Side::Server, b"230-a\r\n", &mut to);
        let bound = 2 * REPLY_BYTES;
        for _ in 0..500 {
            feed(Side::Server, &[b'\n'; 1400], &mut to);
            assert!(to.kept_bytes() < bound, "{} bytes", to.kept_bytes());
            to.changed.clear();
        }
        assert_eq!((to.given_up, to.unseen), (0, false), "rules saw all replies");
        feed(Side::Server, &[b'\n'; 10_000], &mut to);
        assert!(to.kept_bytes() < bound && to.given_up > 0 && to.unseen);
        to.changed.clear();
        to.given_up = 0;
        for port in 0..100 {
            feed(Side::Server, format!("227-(1,1,1,1,9,{port})\r\n").as_bytes(), &mut to);
            assert!(to.last().unwrap().numbers(Number::FTP_DYNAMIC_PORT, true).count() <= PORTS);
        }
        assert_eq!(to.given_up, 100 - PORTS as u64);
    }
}
