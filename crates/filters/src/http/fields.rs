//! The fields of a head as a map, and the cookies in them. Made only if they are asked for.

use crate::parts::eve::NAME;
use filter::prelude::*;
use filter::record::list_push;
use filter::{Counters, Wanted};
use protocols::http::fields;
use std::borrow::Cow;

/// Values of one map at most.
const VALUES_MAX: usize = 256;

/// Bytes of the names and values of one map at most.
const BYTES_MAX: usize = 64 << 10;

/// Texts by their names: a name may have several.
static MAP: Schema =
    Schema::map("texts", &[Field::new("name", FieldType::Text), Field::new("values", FieldType::Rows(&NAME))]);

/// The fields of records with the maps.
pub(super) const FIELDS: [Field; 2] =
    [Field::new("http.headers", FieldType::Rows(&MAP)), Field::new("http.cookies", FieldType::Rows(&MAP))];

/// Whether a filter names fields of heads, also by the name that `transactions` gives those of the request.
pub(super) fn are_named(wanted: &Wanted) -> bool {
    ["http.headers", "http.cookies", "http.request_headers", "http.request_cookies"]
        .iter()
        .any(|name| wanted.names_field(name))
}

/// A map that grows.
#[derive(Debug, Default)]
struct Map<'a> {
    /// Each name, and the rows of its values.
    entries: Vec<(Cow<'a, [u8]>, Vec<u8>)>,
    values: usize,
    bytes: usize,
    /// Values without room.
    over: u64,
}

impl<'a> Map<'a> {
    fn add(&mut self, name: Cow<'a, [u8]>, value: &[u8]) {
        if name.is_empty() {
            return;
        }
        let bytes = self.bytes + name.len() + value.len();
        if self.values == VALUES_MAX || bytes > BYTES_MAX {
            self.over += 1;
            return;
        }
        (self.values, self.bytes) = (self.values + 1, bytes);
        let place = self.entries.iter().position(|(known, _)| *known == name).unwrap_or_else(|| {
            self.entries.push((name, Vec::new()));
            self.entries.len() - 1
        });
        list_push(&mut self.entries[place].1, RowWriter::new(&NAME).text("", value).row());
    }

    fn write(self, row: &mut RowWriter, field: &'static str, counters: &mut Counters) {
        if self.over > 0 {
            counters.events.add("http fields left out", self.over);
        }
        let (mut list, mut entry) = (Vec::new(), RowWriter::new(&MAP));
        for (name, values) in self.entries {
            entry.begin();
            list_push(&mut list, entry.text("name", name).rows("values", &values).row());
        }
        if !list.is_empty() {
            row.rows(field, &list);
        }
    }
}

/// Writes the fields of a head, by their names in lower case, and the names and values of its cookies (RFC 6265, 4.1.1 and
/// 4.2.1).
pub(super) fn write(head: &[u8], row: &mut RowWriter, counters: &mut Counters) {
    let (mut headers, mut cookies) = (Map::default(), Map::default());
    for (name, value) in fields(head) {
        let name = name.to_ascii_lowercase();
        let pairs = match &name[..] {
            b"cookie" => usize::MAX,
            b"set-cookie" => 1,
            _ => 0,
        };
        for pair in value.split(|byte| *byte == b';').take(pairs) {
            let (name, value) = pair.split_at(memchr::memchr(b'=', pair).unwrap_or(pair.len()));
            cookies.add(name.trim_ascii().into(), value.strip_prefix(b"=").unwrap_or_default().trim_ascii());
        }
        headers.add(name.into(), &unfold(value));
    }
    headers.write(row, FIELDS[0].name, counters);
    cookies.write(row, FIELDS[1].name, counters);
}

/// A value in which each folded line break is a space (RFC 9112 section 5.2).
pub(super) fn unfold(value: &[u8]) -> Cow<'_, [u8]> {
    if memchr::memchr(b'\n', value).is_none() {
        return value.into();
    }
    let lines = value.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    lines.collect::<Vec<_>>().join(&b' ').into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::SCHEMA;
    use crate::parts::fields::find;
    use filter::record::FieldValue;

    /// `expected`: names, and their values with commas between them. Returns the values left out.
    fn check(head: &[u8], expected: &[(&str, &str)]) -> u64 {
        let (mut row, mut counters) = (RowWriter::new(&SCHEMA), Counters::default());
        write(head, &mut row, &mut counters);
        let row = Row::new(&SCHEMA, row.row()).unwrap();
        for (name, expected) in expected {
            let mut found = Vec::new();
            find(name, &SCHEMA).unwrap().0.each(&row, &mut |value| {
                let FieldValue::Text(text) = value else { panic!("{value:?}") };
                found.push(String::from_utf8_lossy(text).into_owned());
                true
            });
            assert_eq!(found.join(","), *expected, "{name}");
        }
        counters.events.get("http fields left out")
    }

    #[test]
    fn any_header_and_cookie_has_a_name() {
        let request =
            b"GET / HTTP/1.1\r\nHost: a\r\nX-Long: one\r\n two\r\nCookie: id=5; Theme = dark;\r\nCookie: x\r\n\r\n";
        let names = [
            ("http.headers.host", "a"),
            ("http.headers.X-LONG", "one two"),
            ("http.headers.cookie", "id=5; Theme = dark;,x"),
            ("http.cookies.id", "5"),
            ("http.cookies.theme", "dark"),
            ("http.cookies.x", ""),
            ("http.headers.server", ""),
        ];
        assert_eq!(check(request, &names), 0);
        let response = b"HTTP/1.1 200 OK\nSet-Cookie: id=5; Path=/\nSET-COOKIE: b=\"c=d\"\nServer: cut";
        let names = [
            ("http.headers.set-cookie", "id=5; Path=/,b=\"c=d\""),
            ("http.cookies.id", "5"),
            ("http.cookies.path", ""),
            ("http.cookies.b", "\"c=d\""),
            ("http.headers.server", ""),
        ];
        assert_eq!(check(response, &names), 0);
    }

    #[test]
    fn a_head_with_more_fields_than_fit_is_counted() {
        let mut head = b"GET / HTTP/1.1\r\n".to_vec();
        (0..300).for_each(|number| head.extend_from_slice(format!("n{number}: {number}\r\n").as_bytes()));
        assert_eq!(check(&head, &[("http.headers.n255", "255"), ("http.headers.n256", "")]), 44);
        let long = [b"GET / HTTP/1.1\r\nLong: ", &[b'x'; BYTES_MAX][..], b"\r\nb: c\r\n\r\n"].concat();
        assert_eq!(check(&long, &[("http.headers.long", ""), ("http.headers.b", "c")]), 1);
    }
}
