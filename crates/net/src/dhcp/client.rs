//! A DHCP client (RFC 2131, section 4.4) without sockets and clock: the caller passes messages and the time in ns.
//!
//! ```text
//!            DISCOVER       OFFER, REQUEST        ACK            no conflict         T1           T2
//!  Waiting ──────────▶ Asking ──────────▶ Requesting ──▶ Checking ──────────▶ Bound ──▶ Renewing ──▶ Rebinding ──▶ (lost)
//!     ▲                                       │ NAK         │ conflict: DECLINE   ▲ │ restart  │ ACK       │ ACK
//!     └───────────────────────────────────────┴─────────────┘                     └─┴──────────┴───────────┘
//! ```

use super::lease::Lease;
use super::message::{self, Answer, Ask, Terms};
use crate::limits::{
    DHCP_ATTEMPTS, DHCP_CHECK, DHCP_DECLINED, DHCP_FIRST, DHCP_LONGEST, DHCP_PROBES, DHCP_REFUSED, DHCP_RENEW_LEAST,
    SECOND,
};
use packet::dhcp::kind;
use std::net::Ipv4Addr;

/// An action for the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    /// Send a message from this address to this server, or (255.255.255.255) to all.
    Send { message: Vec<u8>, from: Ipv4Addr, to: Ipv4Addr },
    /// Ask by ARP whether another host has this address (RFC 5227).
    Probe(Ipv4Addr),
    /// Use this lease instead of the previous one.
    Use(Lease),
    /// Remove everything that the lease brought.
    Lose,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Waits to begin, or to begin again.
    Waiting,
    Asking,
    Requesting(Terms),
    /// With the number of probes sent.
    Checking(Lease, u32),
    Bound,
    /// The device was down, or is another one: asks whether the lease is still valid (RFC 2131, section 4.4.2).
    Verifying,
    Renewing,
    Rebinding,
}

#[derive(Debug)]
pub(crate) struct Client {
    mac: [u8; 6],
    /// Identifies the client, for good.
    id: [u8; 6],
    state: State,
    /// The lease in use.
    lease: Option<Lease>,
    /// The number of the exchange, and when it began.
    exchange: u32,
    began: u64,
    /// The seconds in the last message that searched for a server: the request repeats them (RFC 2131, section 4.4.1).
    seconds: u16,
    /// When the exchange's last message was first sent: the lease counts from there.
    asked: u64,
    attempts: u32,
    /// Refusals in a row.
    refusals: u32,
    due: Option<u64>,
    random: u64,
}

impl Client {
    /// A client that begins at once. `seed` seeds its random numbers.
    pub(crate) fn new(mac: [u8; 6], seed: u64) -> Client {
        Client {
            mac,
            id: mac,
            state: State::Waiting,
            lease: None,
            exchange: 0,
            began: 0,
            seconds: 0,
            asked: 0,
            attempts: 0,
            refusals: 0,
            due: Some(0),
            random: seed,
        }
    }

    /// A client that continues with the lease of an earlier process, and verifies it.
    pub(crate) fn resume(mac: [u8; 6], id: [u8; 6], lease: Lease, seed: u64, now: u64) -> Client {
        let mut client = Client { id, lease: Some(lease), ..Client::new(mac, seed) };
        client.restart(mac, now);
        client
    }

    /// Its identifier.
    pub(crate) fn id(&self) -> [u8; 6] {
        self.id
    }

    /// When it needs its next turn.
    pub(crate) fn next(&self) -> Option<u64> {
        // An unlimited lease has no times.
        [self.due, self.lease.map(|lease| lease.end)].into_iter().flatten().min().filter(|next| *next != u64::MAX)
    }

    /// The lease in use.
    pub(crate) fn lease(&self) -> Option<&Lease> {
        self.lease.as_ref()
    }

    /// For people.
    pub(crate) fn state(&self) -> &'static str {
        match self.state {
            State::Waiting => "waits before it asks again",
            State::Asking => "asks for servers",
            State::Requesting(_) => "requests an address",
            State::Checking(..) => "checks an address",
            State::Bound => "bound",
            State::Verifying => "verifies the lease",
            State::Renewing => "renews the lease",
            State::Rebinding => "asks any server for the lease",
        }
    }

    /// A random number below `end` (splitmix64).
    fn random(&mut self, end: u64) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut number = self.random;
        number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (number ^ number >> 31) % end.max(1)
    }

    fn begin_exchange(&mut self, state: State, now: u64) {
        self.state = state;
        self.exchange = self.random(1 << 32) as u32;
        (self.began, self.seconds, self.attempts) = (now, 0, 0);
    }

    /// Begins again after `delay`.
    fn wait(&mut self, delay: u64, now: u64) {
        self.state = State::Waiting;
        self.due = Some(now.saturating_add(delay));
    }

    /// The time until the next repetition: doubled each time, plus or minus a second (RFC 2131, section 4.1).
    fn pause(&mut self) -> u64 {
        let pause = (DHCP_FIRST << self.attempts.min(8)).min(DHCP_LONGEST);
        self.attempts += 1;
        pause - SECOND + self.random(2 * SECOND)
    }

    fn ask(&self, kind: u8) -> Ask {
        let Client { exchange, seconds, mac, id, .. } = *self;
        Ask { kind, exchange, seconds, mac, id, has: None, wants: None, server: None }
    }

    fn to_all(ask: Ask) -> Act {
        Act::Send { message: ask.bytes(), from: Ipv4Addr::UNSPECIFIED, to: Ipv4Addr::BROADCAST }
    }

    /// Does whatever is due.
    pub(crate) fn tick(&mut self, now: u64) -> Vec<Act> {
        if self.lease.is_some_and(|lease| lease.end <= now) {
            self.lease = None;
            self.wait(0, now);
            return [vec![Act::Lose], self.turn(now)].concat();
        }
        if self.due.is_some_and(|due| due <= now) { self.turn(now) } else { Vec::new() }
    }

    fn turn(&mut self, now: u64) -> Vec<Act> {
        match (self.state, self.lease) {
            (State::Waiting, _) => {
                self.begin_exchange(State::Asking, now);
                self.discover(now)
            }
            (State::Asking, _) => self.discover(now),
            (State::Requesting(_), _) if self.attempts >= DHCP_ATTEMPTS => {
                self.begin_exchange(State::Asking, now);
                self.discover(now)
            }
            (State::Requesting(terms), _) => self.request(terms, now),
            (State::Checking(lease, DHCP_PROBES), _) => {
                (self.state, self.lease, self.due, self.refusals) = (State::Bound, Some(lease), Some(lease.renew), 0);
                vec![Act::Use(lease)]
            }
            (State::Checking(lease, probes), _) => {
                self.state = State::Checking(lease, probes + 1);
                self.due = Some(now + if probes + 1 < DHCP_PROBES { DHCP_CHECK / 4 } else { DHCP_CHECK / 2 });
                vec![Act::Probe(lease.address)]
            }
            (State::Verifying, Some(lease)) if self.attempts < DHCP_ATTEMPTS / 2 => {
                self.seconds_pass(now);
                self.due = Some(now + self.pause());
                vec![Client::to_all(Ask { wants: Some(lease.address), ..self.ask(kind::REQUEST) })]
            }
            // No answer is no refusal: the lease is valid until its end (RFC 2131, section 3.2).
            (State::Verifying, Some(lease)) => {
                (self.state, self.due) = (State::Bound, Some(lease.renew.max(now)));
                Vec::new()
            }
            (State::Bound, Some(lease)) if now < lease.rebind => {
                self.begin_exchange(State::Renewing, now);
                self.extend(lease, now)
            }
            (State::Renewing, Some(lease)) if now < lease.rebind => self.extend(lease, now),
            (State::Bound | State::Renewing, Some(lease)) => {
                self.begin_exchange(State::Rebinding, now);
                self.extend(lease, now)
            }
            (State::Rebinding, Some(lease)) => self.extend(lease, now),
            // These states have a lease.
            (State::Verifying | State::Bound | State::Renewing | State::Rebinding, None) => {
                self.wait(0, now);
                Vec::new()
            }
        }
    }

    fn seconds_pass(&mut self, now: u64) {
        self.seconds = u16::try_from(now.saturating_sub(self.began) / SECOND).unwrap_or(u16::MAX);
        if self.attempts == 0 {
            self.asked = now;
        }
    }

    fn discover(&mut self, now: u64) -> Vec<Act> {
        self.seconds_pass(now);
        self.due = Some(now + self.pause());
        vec![Client::to_all(self.ask(kind::DISCOVER))]
    }

    fn request(&mut self, terms: Terms, now: u64) -> Vec<Act> {
        if self.attempts == 0 {
            self.asked = now;
        }
        self.due = Some(now + self.pause());
        let ask = Ask { wants: Some(terms.address), server: terms.server, ..self.ask(kind::REQUEST) };
        vec![Client::to_all(ask)]
    }

    /// Asks to extend the lease: first its own server, then all. Repeats that after half of the remaining time, at
    /// least a minute (RFC 2131, section 4.4.5).
    fn extend(&mut self, lease: Lease, now: u64) -> Vec<Act> {
        self.seconds_pass(now);
        self.attempts += 1;
        let (until, to) = match self.state {
            State::Renewing => (lease.rebind, lease.server),
            _ => (lease.end, Ipv4Addr::BROADCAST),
        };
        let half = until.saturating_sub(now) / 2;
        self.due = Some(now.saturating_add(half.max(DHCP_RENEW_LEAST)).min(until));
        let ask = Ask { has: Some(lease.address), ..self.ask(kind::REQUEST) };
        vec![Act::Send { message: ask.bytes(), from: lease.address, to }]
    }

    /// Handles a message of a server. `None`: it is not for this client now.
    pub(crate) fn hear(&mut self, bytes: &[u8], now: u64) -> Option<Vec<Act>> {
        let answer = message::read(bytes, self.exchange, self.mac)?;
        match (self.state, answer) {
            (State::Asking, Answer::Offer(terms)) if terms.server.is_some() => {
                self.state = State::Requesting(terms);
                self.attempts = 0;
                Some(self.request(terms, now))
            }
            (State::Requesting(asked), Answer::Ack(terms))
                if terms.address == asked.address && terms.server.is_none_or(|server| Some(server) == asked.server) =>
            {
                let lease = self.lease_of(terms, asked.server?);
                self.state = State::Checking(lease, 0);
                Some(self.turn(now))
            }
            (State::Verifying | State::Renewing | State::Rebinding, Answer::Ack(terms)) => {
                let before = self.lease.filter(|lease| lease.address == terms.address)?;
                let lease = self.lease_of(terms, terms.server.unwrap_or(before.server));
                (self.state, self.lease, self.due, self.refusals) = (State::Bound, Some(lease), Some(lease.renew), 0);
                Some(vec![Act::Use(lease)])
            }
            (State::Requesting(asked), Answer::Nak(server))
                if server.is_none_or(|server| Some(server) == asked.server) =>
            {
                self.refused(now);
                Some(Vec::new())
            }
            (State::Verifying | State::Renewing | State::Rebinding, Answer::Nak(_)) => {
                self.refused(now);
                Some(vec![Act::Lose])
            }
            _ => None,
        }
    }

    /// Begins again after a refusal: soon at first, later after longer waits, to spare a server that always refuses.
    fn refused(&mut self, now: u64) {
        self.lease = None;
        let delay = (DHCP_REFUSED << self.refusals.min(8)).min(DHCP_LONGEST);
        self.refusals += 1;
        let delay = delay + self.random(SECOND);
        self.wait(delay, now);
    }

    /// The lease of these terms, counted from the time of the request.
    fn lease_of(&mut self, terms: Terms, server: Ipv4Addr) -> Lease {
        let Terms { address, bits, router, mtu, .. } = terms;
        if terms.lease == u32::MAX {
            let never = u64::MAX;
            return Lease { address, bits, router, mtu, server, renew: never, rebind: never, end: never };
        }
        let whole = u64::from(terms.lease) * SECOND;
        let said = |time: Option<u32>| time.map(|time| u64::from(time) * SECOND);
        let rebind = said(terms.rebinding).filter(|rebind| (1..whole).contains(rebind)).unwrap_or(whole / 8 * 7);
        let renew = said(terms.renewal).filter(|renew| (1..rebind).contains(renew)).unwrap_or(whole / 2).min(rebind);
        // Clients that started together should not ask together (RFC 2131, section 4.4.5).
        let renew = renew - self.random(renew / 32);
        let from = self.asked;
        Lease { address, bits, router, mtu, server, renew: from + renew, rebind: from + rebind, end: from + whole }
    }

    /// Handles a conflicting ARP packet for this address (RFC 5227 2.1.1). `None`: the client is not checking it.
    pub(crate) fn conflict(&mut self, address: Ipv4Addr, now: u64) -> Option<Vec<Act>> {
        let State::Checking(lease, _) = self.state else { return None };
        if lease.address != address {
            return None;
        }
        let ask = Ask { wants: Some(address), server: Some(lease.server), seconds: 0, ..self.ask(kind::DECLINE) };
        self.wait(DHCP_DECLINED, now);
        Some(vec![Client::to_all(ask)])
    }

    /// The device was down, or is another one, of this hardware address. Verifies a lease, else begins at once.
    pub(crate) fn restart(&mut self, mac: [u8; 6], now: u64) {
        self.mac = mac;
        match self.lease {
            Some(_) => self.begin_exchange(State::Verifying, now),
            None => self.state = State::Waiting,
        }
        self.due = Some(now);
    }

    /// Returns the lease to its server (RFC 2131, section 4.4.6).
    pub(crate) fn release(&mut self) -> Vec<Act> {
        let Some(lease) = self.lease.take() else { return Vec::new() };
        self.exchange = self.random(1 << 32) as u32;
        let ask = Ask { has: Some(lease.address), server: Some(lease.server), seconds: 0, ..self.ask(kind::RELEASE) };
        (self.state, self.due) = (State::Waiting, None);
        vec![Act::Send { message: ask.bytes(), from: lease.address, to: lease.server }]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use packet::dhcp::{COOKIE, Packet};

    const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
    const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
    const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 9);
    const HOUR: u64 = 3600 * SECOND;

    /// Kind, exchange, requested address and server of the only message among these acts.
    fn sent(acts: &[Act]) -> (u8, u32, Option<[u8; 4]>, Option<[u8; 4]>, Ipv4Addr) {
        let [Act::Send { message, to, .. }] = acts else { panic!("one message: {acts:?}") };
        let packet = Packet::new_checked(message).expect("it is sound");
        let address = |code| packet.option(code).map(|bytes| bytes.try_into().expect("an address"));
        let kind = packet.option(53).expect("a kind")[0];
        (kind, packet.exchange(), address(50), address(54), *to)
    }

    /// An answer of the server to the client's exchange.
    fn answer(client: &Client, kind: u8) -> Vec<u8> {
        let mut bytes = vec![0; Packet::FIXED_BYTES];
        bytes[..3].copy_from_slice(&[2, 1, 6]);
        bytes[4..8].copy_from_slice(&client.exchange.to_be_bytes());
        bytes[16..20].copy_from_slice(&ADDRESS.octets());
        bytes[28..34].copy_from_slice(&client.mac);
        bytes[236..].copy_from_slice(&COOKIE);
        bytes.extend([
            53, 1, kind, 1, 4, 255, 255, 255, 0, 54, 4, 10, 0, 0, 1, 51, 4, 0, 0, 14, 16, 3, 4, 10, 0, 0, 1, 255,
        ]);
        bytes
    }

    fn hear(client: &mut Client, kind: u8, now: u64) -> Option<Vec<Act>> {
        let answer = answer(client, kind);
        client.hear(&answer, now)
    }

    /// A client that has the lease since `SECOND`.
    fn bound() -> Client {
        let mut client = Client::new(MAC, 7);
        assert_eq!(sent(&client.tick(SECOND)).0, kind::DISCOVER);
        let request = hear(&mut client, kind::OFFER, SECOND).expect("it asks");
        assert_eq!(
            sent(&request),
            (kind::REQUEST, client.exchange, Some(ADDRESS.octets()), Some(SERVER.octets()), Ipv4Addr::BROADCAST)
        );
        assert_eq!(hear(&mut client, kind::ACK, SECOND).expect("it asks"), [Act::Probe(ADDRESS)]);
        let mut now = SECOND;
        loop {
            now = client.next().expect("it checks on").max(now);
            let acts = client.tick(now);
            if let [Act::Use(lease)] = acts[..] {
                assert_eq!((lease.address, lease.bits, lease.router), (ADDRESS, 24, Some(SERVER)));
                assert_eq!((lease.end, now - SECOND), (SECOND + HOUR, DHCP_CHECK));
                return client;
            }
            assert_eq!(acts, [Act::Probe(ADDRESS)]);
        }
    }

    #[test]
    fn a_lease_is_asked_for_checked_renewed_and_given_back() {
        let mut client = bound();
        let renew = client.next().expect("a lease has a time");
        assert!((HOUR / 2 - HOUR / 32..=HOUR / 2 + SECOND).contains(&renew), "{renew}");
        assert!(client.tick(renew - 1).is_empty());
        let (kind, _, wants, server, to) = sent(&client.tick(renew));
        assert_eq!((kind, wants, server, to), (kind::REQUEST, None, None, SERVER));
        let [Act::Use(lease)] = hear(&mut client, kind::ACK, renew + 1).expect("it is for it")[..] else {
            panic!("used")
        };
        assert_eq!(lease.end, renew + HOUR);
        let (kind, _, _, server, to) = sent(&client.release());
        assert_eq!((kind, server, to), (kind::RELEASE, Some(SERVER.octets()), SERVER));
        assert_eq!((client.next(), client.lease()), (None, None));
    }

    #[test]
    fn without_answers_it_asks_its_server_then_all_and_loses_the_lease_at_its_end() {
        let mut client = bound();
        let (mut to_server, mut to_all) = (0, 0);
        let lost = loop {
            let now = client.next().expect("a lease ends");
            let acts = client.tick(now);
            if acts.first() == Some(&Act::Lose) {
                assert_eq!(sent(&acts[1..]).0, kind::DISCOVER);
                break now;
            }
            match sent(&acts).4 {
                SERVER => to_server += 1,
                Ipv4Addr::BROADCAST => to_all += 1,
                other => panic!("{other}"),
            }
        };
        assert_eq!(lost, SECOND + HOUR);
        assert!(to_server > 2 && to_all > 2 && to_server + to_all < 60, "{to_server} {to_all}");
    }

    #[test]
    fn questions_without_an_answer_get_rare_and_never_end() {
        let mut client = Client::new(MAC, 9);
        let (mut now, mut pauses) = (SECOND, Vec::new());
        for _ in 0..8 {
            assert_eq!(sent(&client.tick(now)).0, kind::DISCOVER);
            let next = client.next().expect("it asks on");
            pauses.push((next - now).div_ceil(SECOND));
            now = next;
        }
        assert!(
            pauses.windows(2).all(|pair| pair[1] + 2 >= pair[0]) && pauses[7] >= 63 && pauses[7] <= 65,
            "{pauses:?}"
        );
    }

    #[test]
    fn refusals_conflicts_and_strangers() {
        let mut client = bound();
        // For another exchange, for another client, and from another server.
        assert_eq!(hear(&mut client, kind::ACK, 2 * SECOND), None);
        assert_eq!(hear(&mut client, kind::NAK, 2 * SECOND), None);
        let renew = client.next().expect("a lease has a time");
        client.tick(renew);
        assert_eq!(hear(&mut client, kind::NAK, renew), Some(vec![Act::Lose]));
        let begins = client.next().expect("it begins again");
        assert!(begins > renew && sent(&client.tick(begins)).0 == kind::DISCOVER);
        hear(&mut client, kind::OFFER, begins).expect("it asks");
        hear(&mut client, kind::ACK, begins).expect("it checks");
        assert_eq!(client.conflict(SERVER, begins), None);
        let declined = client.conflict(ADDRESS, begins).expect("it is the address");
        assert_eq!(sent(&declined).0, kind::DECLINE);
        assert_eq!((client.next(), client.lease()), (Some(begins + DHCP_DECLINED), None));
    }

    #[test]
    fn another_process_goes_on_with_the_lease_and_the_name() {
        let lease = *bound().lease().expect("it has one");
        let other = [2, 0, 0, 0, 0, 7];
        let mut client = Client::resume(other, MAC, lease, 3, 60 * SECOND);
        let acts = client.tick(60 * SECOND);
        assert_eq!(
            (sent(&acts).0, sent(&acts).2, client.lease(), client.id()),
            (kind::REQUEST, Some(ADDRESS.octets()), Some(&lease), MAC)
        );
        // No answer: the lease is good until its end.
        while client.state != State::Bound {
            client.tick(client.next().expect("it asks on"));
        }
        assert_eq!(client.next(), Some(lease.renew));
        client.restart(other, 70 * SECOND);
        client.tick(70 * SECOND);
        assert_eq!(hear(&mut client, kind::NAK, 70 * SECOND), Some(vec![Act::Lose]));
    }
}
