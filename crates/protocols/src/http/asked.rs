//! The requests of a connection that wait for their response. The meaning of a response depends on its request (HEAD
//! and CONNECT), and its record shows the request. Matching is by order (RFC 9112 section 9.3.2): a response answers
//! the oldest request given before it, and behind missing bytes the newest.

use base::limits::HTTP_ASKED_BYTES;
use std::collections::VecDeque;

/// The facts about a request that its response depends on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Method {
    /// The response has no body.
    Head,
    /// A successful response makes the connection a tunnel.
    Connect,
    /// Any other method, or unknown.
    #[default]
    Other,
}

impl Method {
    /// The method of this name.
    pub fn of(name: &[u8]) -> Method {
        match name {
            b"HEAD" => Method::Head,
            b"CONNECT" => Method::Connect,
            _ => Method::Other,
        }
    }
}

/// A request, as its response's record shows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Question<'a> {
    /// How many requests of the connection came before; given when it is kept.
    pub number: Option<u64>,
    /// What its response depends on.
    pub kind: Method,
    /// The method.
    pub method: Option<&'a [u8]>,
    /// The host, without its port.
    pub host: Option<&'a [u8]>,
    /// The target.
    pub url: Option<&'a [u8]>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    kind: Method,
    /// Lengths of the entry's consecutive texts; `None`: no such text.
    lengths: [Option<u32>; 3],
}

/// The queue of requests.
#[derive(Debug, Default)]
pub struct Asked {
    entries: VecDeque<Entry>,
    /// Texts of all entries in order, from `start` on.
    text: Vec<u8>,
    start: usize,
    /// Requests so far.
    count: u64,
}

/// Memory that an empty queue keeps for the next request.
const KEPT_BYTES: usize = 4 << 10;

impl Asked {
    /// Bytes of memory, as far as a peer decides them.
    pub fn bytes(&self) -> usize {
        self.entries.capacity() * size_of::<Entry>() + self.text.capacity()
    }

    /// Numbers a request, adds it and copies its texts; returns whether they were kept.
    pub fn push_copy(&mut self, question: &mut Question<'_>) -> bool {
        let number = self.count;
        (self.count, question.number) = (number + 1, Some(number));
        let texts = [question.method, question.host, question.url];
        let length: usize = texts.iter().flatten().map(|text| text.len()).sum();
        let held = self.text.len() - self.start + self.entries.len() * size_of::<Entry>();
        let fits = held + length + size_of::<Entry>() <= HTTP_ASKED_BYTES;
        // HEAD and CONNECT are kept longer than texts, because the framing of later bytes depends on them.
        if !fits && self.entries.len() * size_of::<Entry>() >= 2 * HTTP_ASKED_BYTES {
            self.forget();
            return false;
        }
        if self.start > self.text.len() / 2 {
            self.text.drain(..self.start);
            self.start = 0;
        }
        let mut lengths = [None; 3];
        if fits {
            for (slot, text) in lengths.iter_mut().zip(texts) {
                self.text.extend_from_slice(text.unwrap_or_default());
                *slot = text.map(|text| text.len() as u32);
            }
        }
        self.entries.push_back(Entry { kind: question.kind, lengths });
        fits
    }

    /// A number for a response that answers no request. No request may wait.
    pub fn skip(&mut self) -> u64 {
        self.count += 1;
        self.count - 1
    }

    /// The request that the next response answers.
    pub fn front(&self) -> Option<Question<'_>> {
        let entry = self.entries.front()?;
        let number = Some(self.count - self.entries.len() as u64);
        let mut at = self.start;
        let [method, host, url] = entry.lengths.map(|length| {
            let from = at;
            at += length? as usize;
            self.text.get(from..at)
        });
        Some(Question { kind: entry.kind, number, method, host, url })
    }

    /// The next response came.
    pub fn pop(&mut self) {
        if let Some(entry) = self.entries.pop_front() {
            self.start += entry.lengths.iter().flatten().map(|length| *length as usize).sum::<usize>();
        }
        if self.entries.is_empty() {
            self.forget();
        }
    }

    /// Responses are missing: the next one answers the newest request.
    pub fn forget_but_newest(&mut self) {
        while self.entries.len() > 1 {
            self.pop();
        }
    }

    /// The same without memory: the next request has the next number.
    pub fn emptied(&self) -> Asked {
        Asked { count: self.count, ..Asked::default() }
    }

    /// Requests are missing: those before them are not answered any more.
    pub fn forget(&mut self) {
        self.entries.clear();
        self.text.clear();
        self.start = 0;
        if self.bytes() > KEPT_BYTES {
            (self.entries, self.text) = (VecDeque::new(), Vec::new());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question<'a>(method: &'a str, host: Option<&'a str>, url: &'a str) -> Question<'a> {
        Question {
            number: None,
            kind: Method::of(method.as_bytes()),
            method: Some(method.as_bytes()),
            host: host.map(str::as_bytes),
            url: Some(url.as_bytes()),
        }
    }

    #[test]
    fn answers_come_in_the_order_of_requests() {
        let rows = [
            question("GET", Some("a.example"), "/1"),
            question("HEAD", None, "/2"),
            question("CONNECT", Some(""), "b.example:443"),
        ];
        let mut asked = Asked::default();
        for round in 0..100 {
            let mut rows = rows;
            for row in &mut rows {
                assert!(asked.push_copy(row));
            }
            for row in rows {
                assert_eq!(asked.front(), Some(row), "round {round}");
                asked.pop();
            }
            assert_eq!(asked.front(), None);
        }
    }

    #[test]
    fn behind_missing_responses_the_newest_request_is_answered() {
        let mut asked = Asked::default();
        for url in ["/1", "/2", "/3"] {
            asked.push_copy(&mut question("GET", None, url));
        }
        asked.forget_but_newest();
        assert_eq!(asked.front().map(|it| (it.number, it.url)), Some((Some(2), Some(&b"/3"[..]))));
        asked.pop();
        asked.forget_but_newest();
        assert_eq!(asked.front(), None);
    }

    #[test]
    fn it_is_bounded() {
        let mut asked = Asked::default();
        let long = "x".repeat(1000);
        for (requests, named) in [(1000, 60), (100_000, 1000)] {
            let kept = (0..requests).filter(|_| asked.push_copy(&mut question("GET", None, &long))).count();
            assert!(kept >= named, "{kept} named");
            assert!(asked.bytes() <= 6 * HTTP_ASKED_BYTES, "{} bytes", asked.bytes());
        }
        asked.forget();
        assert!(asked.bytes() <= KEPT_BYTES);
    }

    #[test]
    fn an_empty_queue_gives_its_memory_back() {
        let empty_by: [fn(&mut Asked); 2] = [Asked::forget, |asked| {
            (0..5000).for_each(|_| {
                if asked.front().is_some() {
                    asked.pop()
                }
            })
        }];
        for empty in empty_by {
            let mut asked = Asked::default();
            for _ in 0..4000 {
                asked.push_copy(&mut question("", None, ""));
            }
            let room = asked.entries.capacity() * size_of::<Entry>();
            assert!(room > 4000 * size_of::<Entry>() && asked.bytes() >= room, "what is kept is what is charged");
            empty(&mut asked);
            assert!(asked.entries.capacity() * size_of::<Entry>() <= KEPT_BYTES && asked.bytes() <= KEPT_BYTES);
            // A small queue keeps its memory for the next request.
            asked.push_copy(&mut question("GET", None, "/"));
            let small = asked.bytes();
            empty(&mut asked);
            assert_eq!(asked.bytes(), small);
        }
    }
}
