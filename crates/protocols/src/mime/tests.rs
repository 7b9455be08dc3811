//! Results must not depend on how the bytes are cut.

use super::*;

/// Runs a parser. Fields become `name=value`, files `name: data`.
fn read(mut mime: Mime, bytes: &[u8], size: usize) -> Vec<String> {
    let mut found = Vec::new();
    let mut see = |one: Found<'_>| match one {
        Found::Field(name, value) => {
            found.push(format!("{}={}", String::from_utf8_lossy(name), String::from_utf8_lossy(value)));
        }
        Found::File { name, .. } => found.push(format!("{}: ", String::from_utf8_lossy(name.unwrap_or(b"?")))),
        Found::Data(bytes) => found.last_mut().unwrap().extend(bytes.iter().map(|byte| char::from(*byte))),
        Found::More => found.push("more".to_string()),
        Found::Missing(count) => found.last_mut().unwrap().push_str(&format!("<{count}>")),
        Found::Head(_) | Found::End(_) => {}
    };
    bytes.chunks(size).for_each(|piece| mime.feed(piece, &mut see));
    mime.end(&mut see);
    found
}

fn check(mail: &str, expected: &[&str]) {
    let mail = mail.replace('\n', "\r\n");
    for size in [1, 2, 3, 7, 50, mail.len()] {
        assert_eq!(read(Mime::default(), mail.as_bytes(), size), expected, "by {size}");
    }
}

#[test]
fn attachments() {
    check(
        "Subject: a\n b\nContent-Type: multipart/mixed; boundary=\"x y\"\n\nno part\n--x y\n\nplain\n\
         --x y\nContent-Type: text/plain; name=a.txt\n\none\n-two\n\n--x y\n\
         Content-Disposition: attachment; filename=\"b;.bin\"\nContent-Transfer-Encoding: BASE64\n\naGFs\nbG8=d29ybGQ\n\
         --x y\nContent-Transfer-Encoding: quoted-printable\nContent-Disposition: attachment; filename*=UTF-8''c%20d\n\n\
         a=3Db=\n c=zz\nend\n--x y--\nbehind\n",
        &[
            "subject=a b",
            "content-type=multipart/mixed; boundary=\"x y\"",
            "a.txt: one\r\n-two\r\n",
            "b;.bin: halloworld",
            "c d: a=b c=zz\r\nend",
        ],
    );
    check("Content-Type: a/b; name=empty\n\n", &["content-type=a/b; name=empty", "empty: "]);
    check("Content-Type: a/b;name=x\n\nall of it\n", &["content-type=a/b;name=x", "x: all of it\r\n"]);
    check("Content-Transfer-Encoding: base64\n\nYQ==\n", &["content-transfer-encoding=base64", "?: a"]);
}

/// A head without an end must not take memory without an end, and is still parsed behind the bound.
#[test]
fn a_head_without_an_end_is_bounded() {
    let many = "to:\n".repeat(HEAD_BYTES / FIELD_BYTES);
    let found = read(Mime::default(), format!("{many}Content-Type: x; name=a\n\nbytes").as_bytes(), 1000);
    let fields = found.iter().filter(|one| *one == "to=").count();
    assert_eq!(fields, HEAD_BYTES / (FIELD_BYTES + 3));
    assert_eq!(found[fields..], ["more", "a: bytes"]);
    let mut mime = Mime::default();
    mime.feed(b"Subject: a\n", &mut |_| {});
    (0..100_000).for_each(|_| mime.feed(b" b\n", &mut |_| {}));
    assert!(mime.kept_bytes() <= 2 * LINE_BYTES, "{}", mime.kept_bytes());
}

/// Bytes on both sides of a gap are not joined.
#[test]
fn gaps() {
    let read = |first: &str, second: &str| {
        let (mut mime, mut found) = (Mime::default(), Vec::new());
        let mut see = |one: Found<'_>| match one {
            Found::Field(name, _) => found.push(String::from_utf8_lossy(name).into_owned()),
            Found::Data(bytes) if !bytes.is_empty() => found.push(String::from_utf8_lossy(bytes).into_owned()),
            Found::Missing(missing) => found.push(missing.to_string()),
            _ => {}
        };
        mime.feed(first.as_bytes(), &mut see);
        mime.gap(9, &mut see);
        mime.feed(second.as_bytes(), &mut see);
        mime.end(&mut see);
        found.join(" ")
    };
    assert_eq!(read("A: x\nB: ", "C: x\nD: y\n\n"), "a d");
    let head = "Content-Type: x; name=f\n\n";
    assert_eq!(read(&format!("{head}ab"), "cd\nef"), "content-type ab 9 cd \n ef");
    // A line that may have been a boundary.
    assert_eq!(read(&format!("{head}ab\n--c"), "cd"), "content-type ab \n --c 9 cd");
    let coded = "Content-Transfer-Encoding: base64\nContent-Type: x; name=f\n\n";
    assert_eq!(read(&format!("{coded}aGFsb"), "aGFs\naGFs\n"), "content-transfer-encoding content-type hal 9 hal");
    let parts = "Content-Type: multipart/mixed; boundary=b\n\n--b\nContent-Type: x; name=f\n\n";
    let behind = "--b\nContent-Disposition: x; filename=g\n\ng";
    assert_eq!(read(&format!("{parts}f"), behind), "content-type f 9 g");
}

/// One boundary may be a prefix of another, and parts may be nested.
#[test]
fn parts_within_parts() {
    check(
        "Content-Type: multipart/mixed; boundary=a\n\n--a\nContent-Type: multipart/mixed; boundary=ab\n\n\
         --ab\nContent-Type: x; name=1\n\none\n--ab--\n--a\nContent-Type: x; name=2\n\ntwo\n--a--\n",
        &["content-type=multipart/mixed; boundary=a", "1: one", "2: two"],
    );
}

/// A nested mail is parsed if it is encoded, and also if it only claims to be.
#[test]
fn mails_within_mails() {
    let inner = "Content-Type: x; name=evil\n\nbytes\n";
    let head = "Content-Type: message/rfc822; name=good\nContent-Transfer-Encoding: base64\n\n";
    let fields = ["content-type=message/rfc822; name=good", "content-transfer-encoding=base64"];
    check(&format!("{head}{inner}"), &[fields[0], fields[1], "evil: bytes\r\n"]);
    let coded = base64::engine::general_purpose::STANDARD.encode(inner);
    check(&format!("{head}{coded}\n"), &[fields[0], fields[1], "evil: bytes\n"]);
    // A part that only claims to be a mail is a file.
    check(&format!("{head}MZ: this\nis one\n"), &[fields[0], fields[1], "good: MZ: this\r\nis one\r\n"]);
    let mut deep = String::new();
    (0..20).for_each(|_| deep.push_str("Content-Type: message/rfc822; name=m\n\n"));
    assert_eq!(read(Mime::default(), deep.as_bytes(), 9).len(), 2, "the field, and what lies too deep");
}

#[test]
fn forms() {
    let form = b"--b\r\nContent-Disposition: form-data; name=\"c\"\r\n\r\nno file\r\n--b\r\n\
                 Content-Disposition: form-data; name=\"f\"; filename=\"C:\\a.txt\"\r\n\r\n\r\ncontent\r\n--b--";
    for size in [1, 5, form.len()] {
        assert_eq!(read(Mime::form(b"b".to_vec()), form, size), ["C:\\a.txt: \r\ncontent"]);
    }
}

/// Servers store the files of a form as they are, whatever their heads say.
#[test]
fn files_of_forms_are_not_decoded() {
    let disposition = "Content-Disposition: form-data; name=\"f\"; filename=\"a.php\"\r\n";
    for (field, body) in [
        ("Content-Transfer-Encoding: base64\r\n", "<?php evil"),
        ("Content-Transfer-Encoding: quoted-printable\r\n", "<?php =65vil"),
        (
            "Content-Type: message/rfc822\r\n",
            "Content-Type: x; name=b\r\nContent-Transfer-Encoding: base64\r\n\r\n<?php evil",
        ),
        ("Content-Type: multipart/mixed; boundary=x\r\n", "--x\r\n\r\n<?php evil\r\n--x--"),
        ("Content-Type: multipart/mixed; boundary=x\r\n--x\r\n", "<?php evil"),
    ] {
        for head in [format!("{disposition}{field}"), format!("{field}{disposition}")] {
            let form = format!("--b\r\n{head}\r\n{body}\r\n--b--");
            for size in [1, 5, form.len()] {
                let found = read(Mime::form(b"b".to_vec()), form.as_bytes(), size);
                assert_eq!(found, [format!("a.php: {body}")], "by {size}");
            }
        }
    }
    // Parts without a name may hold files (RFC 7578, 4.3), and other messages are coded as mails are.
    let mixed = "--b\r\nContent-Disposition: form-data; name=f\r\nContent-Type: multipart/mixed; boundary=x\r\n\r\n\
                 --x\r\nContent-Disposition: file; filename=a\r\n\r\none\r\n--x--\r\n--b--";
    assert_eq!(read(Mime::form(b"b".to_vec()), mixed.as_bytes(), 9), ["a: one"]);
    let coded = format!("--b\r\n{disposition}Content-Transfer-Encoding: base64\r\n\r\naGFsbG8=\r\n--b--");
    assert_eq!(read(Mime::parts(b"b".to_vec()), coded.as_bytes(), 9), ["a.php: hallo"]);
}

proptest::proptest! {
    /// The result is the same for any split.
    #[test]
    fn any_bytes(pieces in proptest::collection::vec(0usize..12, 0..40), size in 1usize..20) {
        const PIECES: [&[u8]; 12] = [
            b"Content-Type: multipart/mixed; boundary=a\r\n", b"Content-Type: message/rfc822; name=m\n", b"\r\n", b"--a", b"--a--\r\n",
            b"Content-Transfer-Encoding: base64\r\n", b"Content-Disposition: x; filename=\"f\"\r\n", b"QUJD", b"=", b"-", b"\r", b"\xff",
        ];
        let bytes = pieces.iter().flat_map(|at| PIECES[*at]).copied().collect::<Vec<u8>>();
        proptest::prop_assert_eq!(read(Mime::default(), &bytes, size), read(Mime::default(), &bytes, bytes.len().max(1)));
    }
}
