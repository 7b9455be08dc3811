//! The keywords that read numbers from a buffer: `byte_test`, `byte_jump`, `byte_extract`, `byte_math`, `isdataat`.

use crate::content::Num;
use crate::mistake::Read;
use crate::text::{Opt, Word, number, unsigned};

/// Where and how a number is encoded in the buffer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Source {
    pub count: usize,
    pub offset: Num0,
    pub relative: bool,
    pub little: bool,
    /// `dce`: the transaction's byte order applies (DCE/RPC).
    pub dce: bool,
    /// The base of a number written as text; `None`: a binary number.
    pub digits: Option<u32>,
    pub mask: u64,
}

/// An offset, possibly from a variable. `None`: 0.
pub(crate) type Num0 = Option<Num>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Test {
    Less,
    More,
    Equal,
    AtMost,
    AtLeast,
    And,
    Or,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Add,
    Subtract,
    Multiply,
    Divide,
    Left,
    Right,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct ByteTest {
    pub source: Source,
    pub test: Test,
    pub negated: bool,
    pub value: Num,
    /// The byte count, if it comes from a variable.
    pub count: Option<Num>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct ByteJump {
    pub source: Source,
    pub count: Option<Num>,
    pub multiplier: i64,
    pub align: bool,
    pub from_beginning: bool,
    pub from_end: bool,
    pub post_offset: Num,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct ByteExtract {
    pub source: Source,
    pub multiplier: u64,
    pub align: u64,
    pub variable: u8,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct ByteMath {
    pub source: Source,
    /// The byte count, if it comes from a variable.
    pub count: Option<Num>,
    pub operation: Operation,
    pub right: Num,
    pub variable: u8,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct DataAt {
    pub at: Num,
    pub relative: bool,
    pub negated: bool,
}

impl Source {
    /// Returns the number and the offset behind it. `from`: the end of the previous step.
    pub fn take(&self, buffer: &[u8], from: usize, count: usize, variables: &[u64]) -> Option<(u64, usize)> {
        let (start, mut end) = self.place(from, count, variables)?;
        if self.is_open(count) {
            end = buffer.len().min(start.checked_add(DIGITS)?);
        }
        let bytes = buffer.get(start..end)?;
        let value = match self.digits {
            Some(base) => {
                let (value, used) = digits(bytes, base)?;
                return Some((self.masked(value), start + used));
            }
            None if self.little || self.dce && variables.get(LITTLE) == Some(&1) => {
                bytes.iter().rev().fold(0u64, |sum, byte| sum << 8 | u64::from(*byte))
            }
            None => bytes.iter().fold(0u64, |sum, byte| sum << 8 | u64::from(*byte)),
        };
        Some((self.masked(value), end))
    }

    /// Whether it reads all digits that there are.
    fn is_open(&self, count: usize) -> bool {
        count == 0 && self.digits.is_some()
    }

    fn place(&self, from: usize, count: usize, variables: &[u64]) -> Option<(usize, usize)> {
        let offset = self.offset.map_or(0, |offset| offset.of(variables));
        let base = if self.relative { from as i64 } else { 0 };
        let start = usize::try_from(base.checked_add(offset)?).ok()?;
        Some((start, start.checked_add(count)?))
    }

    /// The end of the bytes that the step reads; 0 if the offsets are out of range.
    pub fn reach(&self, from: usize, count: usize, variables: &[u64]) -> usize {
        self.place(from, count, variables).map_or(0, |(_, end)| end)
    }

    /// Applies the mask and shifts the result down to the mask's lowest bit.
    fn masked(&self, value: u64) -> u64 {
        if self.mask == 0 { value } else { (value & self.mask) >> self.mask.trailing_zeros() }
    }
}

/// Most bytes of a number written as text: the longest 64-bit number is octal, with a zero before it.
const DIGITS: usize = 23;

/// Parses text like strtoul. Returns the number and the bytes used.
fn digits(bytes: &[u8], base: u32) -> Option<(u64, usize)> {
    let blank = bytes.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
    let mut at = blank;
    let mut base = base;
    let rest = &bytes[at..];
    let hex = rest.get(..2).is_some_and(|two| two.eq_ignore_ascii_case(b"0x"));
    if hex && (base == 16 || base == 0) {
        (at, base) = (at + 2, 16);
    } else if base == 0 {
        base = if rest.first() == Some(&b'0') { 8 } else { 10 };
    }
    let from = at;
    let mut value = 0u64;
    while let Some(digit) = bytes.get(at).and_then(|byte| char::from(*byte).to_digit(base)) {
        value = value.checked_mul(u64::from(base))?.checked_add(u64::from(digit))?;
        at += 1;
    }
    (at > from).then_some((value, at))
}

/// A rule's variable names; the index is the variable's number.
pub(crate) type Names = Vec<String>;

/// Most variables of one rule.
pub(crate) const VARIABLES: usize = 16;

/// Index of the slot behind the variables: 1 if the transaction's numbers are little-endian.
pub(crate) const LITTLE: usize = VARIABLES;

/// Reads a number, or a variable that an earlier step sets.
pub(crate) fn num(word: Word<'_>, names: &Names) -> Read<Num> {
    let word = word.trim();
    if word.text.starts_with(|letter: char| letter.is_ascii_alphabetic() || letter == '_') {
        return match names.iter().position(|name| name == word.text) {
            Some(at) => Ok(Num::Variable(at as u8)),
            None => word.wrong(format!("no earlier byte_extract or byte_math sets {}", word.text)),
        };
    }
    number(word).map(Num::Value)
}

fn new_variable(word: Word<'_>, names: &mut Names) -> Read<u8> {
    let name = word.trim();
    let fits = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    if name.text.is_empty() || !name.text.chars().all(fits) || name.text.as_bytes()[0].is_ascii_digit() {
        return name.wrong(format!("\u{201c}{}\u{201d} is no name of a variable", name.text));
    }
    if let Some(at) = names.iter().position(|known| known == name.text) {
        return Ok(at as u8);
    }
    if names.len() == VARIABLES {
        return name.wrong(format!("a rule has {VARIABLES} variables at most"));
    }
    names.push(name.text.to_string());
    Ok((names.len() - 1) as u8)
}

/// Reads an option word that all byte keywords share. Returns whether the word was one.
fn common(word: Word<'_>, source: &mut Source, base_seen: &mut bool) -> Read<bool> {
    let mut parts = word.text.split_ascii_whitespace();
    match parts.next().unwrap_or_default() {
        "relative" => source.relative = true,
        "little" => source.little = true,
        "big" => source.little = false,
        "endian" => match parts.next() {
            Some("little") => source.little = true,
            Some("big") => source.little = false,
            _ => return word.wrong("endian is big or little"),
        },
        "string" => {
            source.digits.get_or_insert(0);
            match parts.next() {
                Some(base) => source.digits = Some(base_of(Word::new(base, word.at))?),
                None => *base_seen = false,
            }
        }
        base @ ("hex" | "dec" | "oct") => {
            source.digits = Some(base_of(Word::new(base, word.at))?);
            *base_seen = true;
        }
        "bitmask" => {
            source.mask = match parts.next() {
                Some(mask) => {
                    let hex = mask.trim_start_matches("0x");
                    match u64::from_str_radix(hex, 16) {
                        Ok(mask) if mask != 0 => mask,
                        _ => return word.wrong("bitmask needs a hexadecimal number that is not 0"),
                    }
                }
                None => return word.wrong("bitmask needs a number"),
            }
        }
        "dce" => source.dce = true,
        _ => return Ok(false),
    }
    Ok(true)
}

fn base_of(word: Word<'_>) -> Read<u32> {
    match word.text {
        "hex" => Ok(16),
        "dec" => Ok(10),
        "oct" => Ok(8),
        other => word.wrong(format!("\u{201c}{other}\u{201d} is none of hex, dec and oct")),
    }
}

/// Checks that the byte count suits the encoding.
fn check_count(word: Word<'_>, source: &Source) -> Read<()> {
    let most = if source.digits.is_some() { DIGITS } else { 8 };
    if source.count == 0 || source.count > most {
        return word.wrong(format!("1 to {most} bytes can be read here"));
    }
    Ok(())
}

fn arguments<'a>(option: &Opt<'a>, least: usize) -> Read<Vec<Word<'a>>> {
    let value = option.needed()?;
    let words = value.split(',');
    if words.len() < least {
        return value.wrong(format!("{} needs {least} values between commas", option.name.text));
    }
    Ok(words)
}

impl ByteTest {
    pub fn read(option: &Opt<'_>, names: &Names) -> Read<ByteTest> {
        let words = arguments(option, 4)?;
        let mut source = Source::default();
        let count = match num(words[0], names)? {
            Num::Value(count) => {
                source.count = usize::try_from(count).unwrap_or(0);
                None
            }
            variable => Some(variable),
        };
        let sign = words[1].text;
        let (negated, sign) = sign.strip_prefix('!').map_or((false, sign), |sign| (true, sign.trim_start()));
        let test = match sign {
            "<" => Test::Less,
            ">" => Test::More,
            "=" | "" if negated || sign == "=" => Test::Equal,
            "<=" => Test::AtMost,
            ">=" => Test::AtLeast,
            "&" => Test::And,
            "^" => Test::Or,
            other => return words[1].wrong(format!("\u{201c}{other}\u{201d} is no comparison")),
        };
        let value = num(words[2], names)?;
        source.offset = Some(num(words[3], names)?);
        let mut seen = false;
        for word in &words[4..] {
            if !common(*word, &mut source, &mut seen)? {
                return word.wrong(format!("byte_test does not know \u{201c}{}\u{201d}", word.text));
            }
        }
        if count.is_none() && !(words[0].text == "0" && source.is_open(0)) {
            check_count(words[0], &source)?;
        }
        Ok(ByteTest { source, test, negated, value, count })
    }

    /// `grows`: more bytes will follow, so that digits up to the end are not decided yet.
    pub fn holds(&self, buffer: &[u8], from: usize, variables: &[u64], grows: bool) -> bool {
        let Some(count) = count_of(self.count, self.source.count, variables) else { return false };
        let Some((value, end)) = self.source.take(buffer, from, count, variables) else { return false };
        if grows && self.source.is_open(count) && end == buffer.len() {
            return false;
        }
        let with = self.value.of(variables) as u64;
        let holds = match self.test {
            Test::Less => value < with,
            Test::More => value > with,
            Test::Equal => value == with,
            Test::AtMost => value <= with,
            Test::AtLeast => value >= with,
            Test::And => value & with != 0,
            Test::Or => value ^ with != 0,
        };
        holds != self.negated
    }
}

impl ByteTest {
    /// The end of the bytes that the step reads. Of digits without a count the byte behind them is one of these.
    pub fn reach(&self, buffer: &[u8], from: usize, variables: &[u64]) -> usize {
        let count = count_of(self.count, self.source.count, variables).unwrap_or(0);
        if self.source.is_open(count) {
            let read = self.source.take(buffer, from, count, variables);
            return read.map_or(0, |(_, end)| buffer.len().min(end + 1));
        }
        self.source.reach(from, count, variables)
    }
}

/// The byte count. `None` if a variable's value is not in 1..=[`DIGITS`].
fn count_of(variable: Option<Num>, fixed: usize, variables: &[u64]) -> Option<usize> {
    match variable {
        None => Some(fixed),
        Some(variable) => usize::try_from(variable.of(variables)).ok().filter(|count| (1..=DIGITS).contains(count)),
    }
}

impl ByteJump {
    pub fn read(option: &Opt<'_>, names: &Names) -> Read<ByteJump> {
        let words = arguments(option, 2)?;
        let mut source = Source::default();
        let count = match num(words[0], names)? {
            Num::Value(count) => {
                source.count = usize::try_from(count).unwrap_or(0);
                None
            }
            variable => Some(variable),
        };
        source.offset = Some(num(words[1], names)?);
        let mut jump = ByteJump {
            source,
            count,
            multiplier: 1,
            align: false,
            from_beginning: false,
            from_end: false,
            post_offset: Num::Value(0),
        };
        let mut seen = false;
        for word in &words[2..] {
            let (name, rest) = word.text.split_once(' ').unwrap_or((word.text, ""));
            let rest = Word::new(rest, word.at + name.len() + 1);
            match name {
                "multiplier" => jump.multiplier = unsigned(rest, 16)? as i64,
                "align" => jump.align = true,
                "from_beginning" => jump.from_beginning = true,
                "from_end" => jump.from_end = true,
                "post_offset" => jump.post_offset = num(rest, names)?,
                _ if common(*word, &mut jump.source, &mut seen)? => {}
                _ => return word.wrong(format!("byte_jump does not know \u{201c}{}\u{201d}", word.text)),
            }
        }
        if jump.from_beginning && jump.from_end {
            return option.name.wrong("a jump starts from the beginning or from the end");
        }
        // With 0 bytes `byte_jump` reads no number: it jumps by `post_offset`.
        if count.is_none() && jump.source.count != 0 {
            check_count(words[0], &jump.source)?;
        }
        Ok(jump)
    }

    /// The end of the bytes that the step reads.
    pub fn reach(&self, from: usize, variables: &[u64]) -> usize {
        let count = count_of(self.count, self.source.count, variables).unwrap_or(0);
        self.source.reach(from, count, variables)
    }

    /// The target of the jump. `None` if it lies beyond the end of the buffer.
    pub fn end(&self, buffer: &[u8], from: usize, variables: &[u64]) -> Option<usize> {
        let count = if self.count.is_none() && self.source.count == 0 {
            0
        } else {
            count_of(self.count, self.source.count, variables)?
        };
        let (value, end) = if count == 0 {
            let offset = self.source.offset.map_or(0, |offset| offset.of(variables));
            let base = if self.source.relative { from as i64 } else { 0 };
            (0, usize::try_from(base.checked_add(offset)?).ok().filter(|end| *end <= buffer.len())?)
        } else {
            self.source.take(buffer, from, count, variables)?
        };
        let mut jump = i64::try_from(value).ok()?.checked_mul(self.multiplier)?;
        if self.align && jump % 4 != 0 {
            jump = jump.checked_add(4 - jump % 4)?;
        }
        let base = match () {
            () if self.from_beginning => 0,
            () if self.from_end => buffer.len() as i64,
            () => end as i64,
        };
        let to = base.checked_add(jump)?.checked_add(self.post_offset.of(variables))?;
        // A jump to before the start of the buffer stops at the start.
        usize::try_from(to.max(0)).ok().filter(|to| *to <= buffer.len())
    }
}

impl ByteExtract {
    pub fn read(option: &Opt<'_>, names: &mut Names) -> Read<ByteExtract> {
        let words = arguments(option, 3)?;
        let count = usize::try_from(number(words[0])?).unwrap_or(0);
        let mut source = Source { count, offset: Some(num(words[1], names)?), ..Source::default() };
        let (mut multiplier, mut align, mut seen) = (1, 0, false);
        for word in &words[3..] {
            let (name, rest) = word.text.split_once(' ').unwrap_or((word.text, ""));
            let rest = Word::new(rest, word.at + name.len() + 1);
            match name {
                "multiplier" => multiplier = unsigned(rest, 16)?,
                "align" => {
                    align = unsigned(rest, 8)?;
                    if align != 2 && align != 4 {
                        return rest.wrong("align is 2 or 4");
                    }
                }
                _ if common(*word, &mut source, &mut seen)? => {}
                _ => return word.wrong(format!("byte_extract does not know \u{201c}{}\u{201d}", word.text)),
            }
        }
        check_count(words[0], &source)?;
        let variable = new_variable(words[2], names)?;
        Ok(ByteExtract { source, multiplier, align, variable })
    }

    /// Returns the number and the offset behind it.
    pub fn take(&self, buffer: &[u8], from: usize, variables: &[u64]) -> Option<(u64, usize)> {
        let (value, end) = self.source.take(buffer, from, self.source.count, variables)?;
        let value = value.wrapping_mul(self.multiplier);
        let value = if self.align == 0 { value } else { value.checked_next_multiple_of(self.align)? };
        Some((value, end))
    }
}

impl ByteMath {
    pub fn read(option: &Opt<'_>, names: &mut Names) -> Read<ByteMath> {
        let value = option.needed()?;
        let (mut source, mut operation, mut right, mut result) = (Source::default(), None, None, None);
        let (mut count_at, mut count, mut seen) = (value, None, false);
        for word in value.split(',') {
            let (name, rest) = word.text.split_once(' ').unwrap_or((word.text, ""));
            let rest = Word::new(rest, word.at + name.len() + 1).trim();
            match name {
                "bytes" => {
                    count_at = rest;
                    (source.count, count) = match num(rest, names)? {
                        Num::Value(bytes) => (usize::try_from(bytes).unwrap_or(0), None),
                        variable => (0, Some(variable)),
                    };
                }
                "offset" => source.offset = Some(num(rest, names)?),
                "oper" => {
                    operation = Some(match rest.text {
                        "+" => Operation::Add,
                        "-" => Operation::Subtract,
                        "*" => Operation::Multiply,
                        "/" => Operation::Divide,
                        "<<" => Operation::Left,
                        ">>" => Operation::Right,
                        other => return rest.wrong(format!("\u{201c}{other}\u{201d} is no operation")),
                    });
                }
                "rvalue" => right = Some(num(rest, names)?),
                "result" => result = Some(rest),
                _ if common(word, &mut source, &mut seen)? => {}
                _ => return word.wrong(format!("byte_math does not know \u{201c}{}\u{201d}", word.text)),
            }
        }
        let (Some(operation), Some(right), Some(result)) = (operation, right, result) else {
            return value.wrong("byte_math needs bytes, offset, oper, rvalue and result");
        };
        if count.is_none() {
            check_count(count_at, &source)?;
        }
        if operation == Operation::Divide && right == Num::Value(0) {
            return value.wrong("byte_math would divide by 0");
        }
        Ok(ByteMath { source, count, operation, right, variable: new_variable(result, names)? })
    }

    /// Returns the result and the offset behind the number that was read.
    pub fn take(&self, buffer: &[u8], from: usize, variables: &[u64]) -> Option<(u64, usize)> {
        let plain = Source { mask: 0, ..self.source };
        let count = count_of(self.count, self.source.count, variables)?;
        let (value, end) = plain.take(buffer, from, count, variables)?;
        let right = self.right.of(variables) as u64;
        let value = match self.operation {
            Operation::Add => value.wrapping_add(right),
            Operation::Subtract => value.wrapping_sub(right),
            Operation::Multiply => value.wrapping_mul(right),
            Operation::Divide => value.checked_div(right)?,
            Operation::Left => value.checked_shl(right as u32).unwrap_or(0),
            Operation::Right => value.checked_shr(right as u32).unwrap_or(0),
        };
        Some((self.source.masked(value), end))
    }
}

impl DataAt {
    pub fn read(option: &Opt<'_>, names: &Names) -> Read<DataAt> {
        let words = arguments(option, 1)?;
        let text = words[0].text;
        let (negated, first) = match text.strip_prefix('!') {
            Some(rest) => (true, Word::new(rest, words[0].at + 1)),
            None => (false, words[0]),
        };
        let mut relative = false;
        for word in &words[1..] {
            match word.text {
                "relative" => relative = true,
                "rawbytes" => {}
                other => return word.wrong(format!("isdataat does not know \u{201c}{other}\u{201d}")),
            }
        }
        Ok(DataAt { at: num(first, names)?, relative, negated })
    }

    /// The end of the byte that must exist.
    pub fn reach(&self, from: usize, variables: &[u64]) -> usize {
        let at = self.at.of(variables);
        // Relative offsets count from the last byte matched, not from the byte behind it.
        let end = if self.relative { (from as i64).saturating_add(at) } else { at.saturating_add(1) };
        usize::try_from(end).unwrap_or(0)
    }

    pub fn holds(&self, buffer: &[u8], from: usize, variables: &[u64]) -> bool {
        let base = if self.relative { from as i64 } else { 0 };
        let at = base.saturating_add(self.at.of(variables));
        let there = at >= 0 && (at as u64) < buffer.len() as u64 || self.relative && at == 0 && buffer.is_empty();
        // Relative offsets count from the last byte matched, not from the byte behind it.
        let there = if self.relative { at >= 0 && at as u64 <= buffer.len() as u64 } else { there };
        there != self.negated
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn option<'a>(name: &'a str, value: &'a str) -> Opt<'a> {
        Opt { name: Word::new(name, 0), value: Some(Word::new(value, 0)) }
    }

    #[test]
    fn byte_test() {
        let names = vec!["len".to_string()];
        let check = |value: &str, buffer: &[u8], from: usize, expected: bool| {
            let test = ByteTest::read(&option("byte_test", value), &names).unwrap();
            assert_eq!(test.holds(buffer, from, &[3], false), expected, "{value}");
        };
        check("1,=,3,0", &[3], 0, true);
        check("1,=,len,0", &[3], 0, true);
        check("1,!=,3,0", &[3], 0, false);
        check("2,>,256,1,relative", &[0, 9, 1, 1], 1, true);
        check("2,=,257,0,little", &[1, 1], 0, true);
        check("4,=,1234,0,string,dec", b"1234", 0, true);
        check("4,=,0x1f,0,string,hex", b"001f", 0, true);
        check("1,&,0x80,0", &[0x81], 0, true);
        check("2,=,5,0,bitmask 0x0f00", &[5, 0xff], 0, true);
        check("4,=,0,0", &[0, 0], 0, false);
        for wrong in ["1,=,3", "9,=,1,0", "1,?,1,0", "1,=,x,0", "1,=,1,0,odd", "0,=,1,0"] {
            assert!(ByteTest::read(&option("byte_test", wrong), &names).is_err(), "{wrong}");
        }
    }

    #[test]
    fn byte_jump() {
        let check = |value: &str, buffer: &[u8], from: usize, expected: Option<usize>| {
            let jump = ByteJump::read(&option("byte_jump", value), &Vec::new()).unwrap();
            assert_eq!(jump.end(buffer, from, &[]), expected, "{value}");
        };
        check("1,0", &[2, 0, 0, 0], 0, Some(3));
        check("1,0", &[9, 0, 0, 0], 0, None);
        check("1,1,relative,multiplier 2", &[0, 0, 1, 0, 0, 0], 1, Some(5));
        check("1,0,from_beginning", &[2, 0, 0], 0, Some(2));
        check("1,0,align", &[1, 0, 0, 0, 0], 0, Some(5));
        check("1,0,from_end,post_offset -2", &[0, 0, 0], 0, Some(1));
        check("0,2", &[0, 0, 0], 0, Some(2));
    }

    #[test]
    fn byte_extract_and_math() {
        let mut names = Vec::new();
        let extract = ByteExtract::read(&option("byte_extract", "2,1,len,multiplier 2"), &mut names).unwrap();
        assert_eq!(extract.take(&[0, 1, 0], 0, &[]), Some((512, 3)));
        let math = "bytes 1, offset 0, oper +, rvalue len, result sum, relative";
        let math = ByteMath::read(&option("byte_math", math), &mut names).unwrap();
        assert_eq!((math.take(&[0, 7], 1, &[512]), names.len()), (Some((519, 2)), 2));
        let by_count =
            ByteMath::read(&option("byte_math", "bytes len, offset 0, oper +, rvalue 1, result more"), &mut names);
        assert_eq!(by_count.unwrap().take(&[1, 2], 0, &[2]), Some((0x103, 2)));
        assert!(
            ByteMath::read(&option("byte_math", "bytes 1, offset 0, oper /, rvalue 0, result x"), &mut names).is_err()
        );
    }

    #[test]
    fn data_at() {
        let check = |value: &str, from: usize, expected: bool| {
            let at = DataAt::read(&option("isdataat", value), &Vec::new()).unwrap();
            assert_eq!(at.holds(b"12345", from, &[]), expected, "{value} from {from}");
        };
        check("4", 0, true);
        check("5", 0, false);
        check("!5", 0, true);
        check("1,relative", 4, true);
        check("1,relative", 5, false);
        check("!1,relative", 5, true);
    }
}
