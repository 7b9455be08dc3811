//! Reads the options of a rule: each keyword becomes a part of the compiled rule, or is rejected with position and
//! reason. `options/keywords.rs` has keywords of single protocols and of whole files.

mod keywords;

use crate::bytes::{ByteExtract, ByteJump, ByteMath, ByteTest, DataAt, Names, num};
use crate::class::class;
use crate::content::{Content, Num};
use crate::dataset::Datasets;
use crate::entropy::Entropy;
use crate::header::{Action, Header, Protocol};
use crate::inspect::Step;
use crate::mistake::{Read, Wrong};
use crate::names::{App, Buffer, Number, Origin, Way};
use crate::number::{Among, Compare};
use crate::packet_test::PacketTest;
use crate::pcre;
use crate::rule::{Fast, FlowTest, List, Rule, Scope, Target};
use crate::state::{self, Read1};
use crate::text::{Opt, Word, quoted, unsigned};
use crate::threshold::Threshold;
use crate::transform::Transform;

/// Keywords that do not affect matching: notes for people, or data that a sensor stores.
const WITHOUT_EFFECT: &[&str] = &["reference", "target", "filestore", "tag", "prefilter", "rawbytes"];

pub(crate) fn read(header: Header, options: &[Opt<'_>], line: u32, end: usize, datasets: &mut Datasets) -> Read<Rule> {
    let rule = Rule {
        line,
        action: header.action,
        sid: 0,
        gid: 1,
        rev: 0,
        message: String::new(),
        category: "",
        priority: 3,
        metadata: Vec::new(),
        traffic: Vec::new(),
        quiet: false,
        scope: Scope::Packet,
        app: header.protocol.app(),
        flow: FlowTest::default(),
        packet: Vec::new(),
        lists: Vec::new(),
        numbers: Vec::new(),
        among: Vec::new(),
        events: Vec::new(),
        tests: Vec::new(),
        changes: Vec::new(),
        thresholds: Vec::new(),
        suppressed: Vec::new(),
        rate: None,
        fast: None,
        header,
    };
    let mut reader = Reader {
        rule,
        sticky: Target::Payload,
        list: None,
        last: None,
        names: Names::new(),
        fast: None,
        in_decoded: false,
        any_keyword: false,
        alerts: false,
        priority: None,
        datasets,
    };
    for option in options {
        reader.option(option)?;
    }
    reader.finish(end)
}

/// The place of a step: list, index in the list, index in a nested list of decoded bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct At {
    list: usize,
    step: usize,
    inner: Option<usize>,
}

struct Reader<'a> {
    rule: Rule,
    /// Where following contents look.
    sticky: Target,
    /// The list that following contents join.
    list: Option<usize>,
    /// The content that modifiers apply to.
    last: Option<At>,
    names: Names,
    /// The `fast_pattern` content, and the part of it to search.
    fast: Option<(At, Option<(usize, usize)>)>,
    /// Following contents look into decoded base64.
    in_decoded: bool,
    /// The rule has a keyword other than notes, `flowbits:set` and `threshold`.
    any_keyword: bool,
    /// `alert`: a pass rule still alerts.
    alerts: bool,
    priority: Option<u8>,
    datasets: &'a mut Datasets,
}

impl Reader<'_> {
    fn option(&mut self, option: &Opt<'_>) -> Read<()> {
        let name = option.name.text;
        match name {
            "msg" => self.rule.message = unescaped(quoted(option.needed()?)?.0.text),
            "sid" => self.rule.sid = unsigned(option.needed()?, 32)? as u32,
            "gid" => self.rule.gid = unsigned(option.needed()?, 32)? as u32,
            "rev" => self.rule.rev = unsigned(option.needed()?, 32)? as u32,
            "priority" => self.priority = Some(unsigned(option.needed()?, 8)? as u8),
            "classtype" => {
                let value = option.needed()?;
                let Some((text, priority)) = class(value.text) else {
                    return value.wrong(format!("the class {} is not known", value.text));
                };
                (self.rule.category, self.rule.priority) = (text, priority);
            }
            "noalert" => option.bare().map(|()| self.rule.quiet = true)?,
            "alert" => option.bare().map(|()| self.alerts = true)?,
            "metadata" => option.value.into_iter().for_each(|value| self.metadata(value.text)),
            _ if WITHOUT_EFFECT.contains(&name) => {}
            "requires" => requires(option.needed()?)?,
            _ => {
                // A rule that only sets bits still counts as a rule on addresses alone.
                let sets = name == "flowbits" && option.value.is_some_and(|value| value.text.starts_with("set"));
                let counts = matches!(name, "threshold");
                if sets && let Some((_, bit)) = option.value.and_then(|value| value.text.split_once(',')) {
                    self.rule.traffic.extend(bit.trim().starts_with("traffic/").then(|| bit.trim().to_string()));
                }
                self.any_keyword |= !sets && !counts;
                self.keyword(option)?;
            }
        }
        Ok(())
    }

    fn metadata(&mut self, text: &str) {
        for pair in text.split(',') {
            let Some((key, value)) = pair.trim().split_once(' ') else { continue };
            let value = value.trim().to_string();
            match self.rule.metadata.iter_mut().find(|(known, _)| known == key) {
                Some((_, values)) => values.push(value),
                None => self.rule.metadata.push((key.to_string(), vec![value])),
            }
        }
    }

    fn keyword(&mut self, option: &Opt<'_>) -> Read<()> {
        match option.name.text {
            "flow" => self.flow(option.needed()?),
            "content" | "uricontent" => self.new_content(option),
            "pcre" => self.pattern(option),
            "nocase" | "offset" | "depth" | "distance" | "within" | "startswith" | "endswith" | "fast_pattern" => {
                self.modifier(option)
            }
            "pkt_data" => {
                option.bare()?;
                (self.sticky, self.list, self.last, self.in_decoded) = (Target::Payload, None, None, false);
                Ok(())
            }
            "absent" => self.absent(option),
            "base64_decode" => {
                let step = base64_decode(option)?;
                self.list = Some(self.push(step).list);
                Ok(())
            }
            "base64_data" => {
                option.bare()?;
                self.push(Step::Decoded(Vec::new()));
                self.in_decoded = true;
                self.last = None;
                Ok(())
            }
            _ => match self.measure(option)? {
                Some(step) => {
                    self.push(step);
                    Ok(())
                }
                None => self.of_protocol(option).unwrap_or_else(|| self.named(option)),
            },
        }
    }

    fn new_content(&mut self, option: &Opt<'_>) -> Read<()> {
        let content = Content::read(option.needed()?)?;
        let at = self.push(Step::Content(Box::new(content)));
        self.last = Some(at);
        if option.name.text == "uricontent" {
            self.move_last(Buffer::HTTP_URI);
        }
        Ok(())
    }

    fn pattern(&mut self, option: &Opt<'_>) -> Read<()> {
        let (pcre, buffer) = pcre::read(option.needed()?)?;
        let at = self.push(Step::Pcre(Box::new(pcre)));
        if let Some(buffer) = buffer.and_then(Buffer::of_name) {
            let last = self.last;
            self.last = Some(at);
            self.move_last(buffer);
            self.last = last;
        }
        Ok(())
    }

    fn absent(&mut self, option: &Opt<'_>) -> Read<()> {
        let or_else = match option.value.map(|value| value.text) {
            None => false,
            Some("or_else") => true,
            Some(_) => return option.name.wrong("absent takes or_else"),
        };
        let list = self.list();
        self.rule.lists[list].absent = Some(or_else);
        Ok(())
    }

    /// Reads keywords that ask something else of the bytes than to contain others. `None`: it is another keyword.
    fn measure(&mut self, option: &Opt<'_>) -> Read<Option<Step>> {
        let name = option.name;
        if matches!(name.text, "bsize" | "dataset") && self.sticky == Target::Payload {
            return name.wrong(format!("{} needs a buffer before it", name.text));
        }
        Ok(Some(match name.text {
            "byte_test" => Step::Test(Box::new(ByteTest::read(option, &self.names)?)),
            "byte_jump" => Step::Jump(Box::new(ByteJump::read(option, &self.names)?)),
            "byte_extract" => Step::Extract(Box::new(ByteExtract::read(option, &mut self.names)?)),
            "byte_math" => Step::Math(Box::new(ByteMath::read(option, &mut self.names)?)),
            "isdataat" => Step::DataAt(DataAt::read(option, &self.names)?),
            "bsize" => Step::Size(Compare::read(option.needed()?, 64, |_| None)?),
            "entropy" => Step::Entropy(Entropy::read(option)?),
            "dataset" => {
                let (set, verb) = self.datasets.read(option.needed()?)?;
                Step::Member(set, verb)
            }
            _ => return Ok(None),
        }))
    }

    /// Reads keywords that are table entries.
    fn named(&mut self, option: &Opt<'_>) -> Read<()> {
        let name = option.name.text;
        if let Some(buffer) = Buffer::of_name(name) {
            if name == "filename" {
                return self.file_name(option, false);
            }
            self.stick(option, buffer)?;
            return Ok(());
        }
        if let Some(buffer) = Buffer::of_modifier(name) {
            if self.last.is_none() {
                // Newer rules put these names before their contents, like other buffers.
                return self.stick(option, buffer);
            }
            option.bare()?;
            self.needs_app(option.name, buffer)?;
            self.move_last(buffer);
            return Ok(());
        }
        if let Some(number) = Number::of_name(name) {
            let about = number.about();
            let word = |text: &str| {
                let known = about.words.iter().find(|word| word.0.eq_ignore_ascii_case(text));
                known.map(|word| word.1)
            };
            let words = option.needed()?.split(',');
            let compare = Compare::read(words[0], about.bits, word)?;
            let among = match words[1..] {
                [] => Among::Any,
                [among] => Among::read(among)?,
                [_, more, ..] => return more.wrong(format!("{name} takes a comparison and a place")),
            };
            self.set_app(option.name, about.app)?;
            self.rule.numbers.push((number, compare, among));
            return Ok(());
        }
        if let Some(transform) = Transform::read(option)? {
            let list = self.list();
            if self.rule.lists[list].target == Target::Payload {
                return option.name.wrong(format!("{name} needs a buffer before it"));
            }
            if self.rule.lists[list].steps.is_empty() {
                self.rule.lists[list].transforms.push(transform);
                return Ok(());
            }
            // Earlier contents look at the buffer before this transform.
            let (target, to_server) = (self.rule.lists[list].target, self.rule.lists[list].to_server);
            let mut transforms = self.rule.lists[list].transforms.clone();
            transforms.push(transform);
            self.rule.lists.push(List { target, transforms, steps: Vec::new(), to_server, absent: None });
            (self.list, self.last) = (Some(self.rule.lists.len() - 1), None);
            return Ok(());
        }
        if let Some(test) = PacketTest::read(option)? {
            if let (PacketTest::Event(event), "app-layer-event") = (&test, name)
                && !event.starts_with("applayer_")
            {
                let app = event.split('.').next().and_then(App::of_name);
                if let Some(app) = app {
                    self.set_app(option.name, app)?;
                }
                self.rule.events.push(event);
                return Ok(());
            }
            self.rule.packet.push(test);
            return Ok(());
        }
        if let Some(read) = state::read(option)? {
            match read {
                Read1::Test(test) => self.rule.tests.push(test),
                Read1::Change(change) => self.rule.changes.push(change),
                Read1::Quiet => self.rule.quiet = true,
            }
            return Ok(());
        }
        if let Some(threshold) = Threshold::read(option)? {
            self.rule.thresholds.push(threshold);
            return Ok(());
        }
        option.name.wrong(format!("the keyword {name} is not supported"))
    }

    /// Makes following contents look into this buffer.
    fn stick(&mut self, option: &Opt<'_>, buffer: Buffer) -> Read<()> {
        let to_server = match option.value.map(|value| value.text) {
            None => None,
            Some("to_server") if self.rule.header.whole => Some(true),
            Some("to_client") if self.rule.header.whole => Some(false),
            Some(_) => return option.bare(),
        };
        self.needs_app(option.name, buffer)?;
        self.sticky = Target::Buffer(buffer);
        (self.list, self.last, self.in_decoded) = (None, None, false);
        let list = self.list();
        self.rule.lists[list].to_server = to_server;
        Ok(())
    }

    /// Reads `filename` and `fileext`: a content of the file's name, or its ending after a dot.
    fn file_name(&mut self, option: &Opt<'_>, extension: bool) -> Read<()> {
        let (text, negated) = quoted(option.needed()?)?;
        let dot = if extension { "." } else { "" };
        let value = format!("{}\"{dot}{}\"", if negated { "!" } else { "" }, text.text);
        let mut content = Content::read(Word::new(&value, text.at))?;
        (content.nocase, content.ends) = (true, extension);
        let steps = vec![Step::Content(Box::new(content))];
        let target = Target::Buffer(Buffer::FILE_NAME);
        self.rule.lists.push(List { target, transforms: Vec::new(), steps, to_server: None, absent: None });
        Ok(())
    }

    fn flow(&mut self, value: Word<'_>) -> Read<()> {
        let flow = &mut self.rule.flow;
        for word in value.split(',') {
            let twice = |old: &Option<bool>, new: bool| {
                if old.is_some_and(|old| old != new) {
                    return word.wrong(format!("{} contradicts what stands before it", word.text));
                }
                Ok(Some(new))
            };
            match &*word.text.to_ascii_lowercase() {
                "to_server" | "from_client" => flow.to_server = twice(&flow.to_server, true)?,
                "to_client" | "from_server" => flow.to_server = twice(&flow.to_server, false)?,
                "established" => flow.established = twice(&flow.established, true)?,
                "not_established" => flow.established = twice(&flow.established, false)?,
                "only_stream" => flow.stream = twice(&flow.stream, true)?,
                "no_stream" => flow.stream = twice(&flow.stream, false)?,
                "only_frag" => flow.fragment = twice(&flow.fragment, true)?,
                "no_frag" => flow.fragment = twice(&flow.fragment, false)?,
                "stateless" => {}
                other => return word.wrong(format!("flow does not know \u{201c}{other}\u{201d}")),
            }
        }
        Ok(())
    }

    fn modifier(&mut self, option: &Opt<'_>) -> Read<()> {
        let name = option.name.text;
        let Some(at) = self.last else { return option.name.wrong(format!("{name} needs a content before it")) };
        let names = std::mem::take(&mut self.names);
        let value = |option: &Opt<'_>| num(option.needed()?, &names);
        let result = (|| {
            let Some(content) = self.content(at) else { return Ok(()) };
            let negative = |word: &Opt<'_>, number: Num| match number {
                Num::Value(value) if value < 0 => word.name.wrong(format!("{name} is not below 0")),
                number => Ok(number),
            };
            let relative = content.is_relative();
            let absolute = content.offset.is_some() || content.depth.is_some() || content.starts;
            let mixed = match name {
                "offset" | "depth" => relative,
                "distance" | "within" => absolute,
                "startswith" => relative || absolute,
                _ => false,
            };
            if mixed {
                return option.name.wrong(format!("{name} contradicts what is said of this content"));
            }
            match name {
                "nocase" => option.bare().map(|()| content.nocase = true)?,
                "offset" => content.offset = Some(negative(option, value(option)?)?),
                "depth" => {
                    let depth = negative(option, value(option)?)?;
                    if let Num::Value(depth) = depth
                        && (depth as usize) < content.bytes.len()
                    {
                        return option.name.wrong("the content is longer than its depth");
                    }
                    content.depth = Some(depth);
                }
                "distance" => content.distance = Some(value(option)?),
                "within" => {
                    let within = negative(option, value(option)?)?;
                    if let Num::Value(within) = within
                        && (within as usize) < content.bytes.len()
                    {
                        return option.name.wrong("the content is longer than it may lie away");
                    }
                    content.within = Some(within);
                }
                "startswith" => {
                    option.bare()?;
                    content.starts = true;
                    (content.offset, content.depth) =
                        (Some(Num::Value(0)), Some(Num::Value(content.bytes.len() as i64)));
                }
                "endswith" => option.bare().map(|()| content.ends = true)?,
                _ => {
                    if content.negated && content.is_relative() {
                        return option
                            .name
                            .wrong("a content that must not be there, relative to another, is not looked for first");
                    }
                    content.fast = true;
                }
            }
            Ok(())
        })();
        self.names = names;
        result?;
        if name == "fast_pattern" {
            if self.fast.is_some_and(|fast| fast.0 != at) {
                return option.name.wrong("one content of a rule is looked for first");
            }
            let part = match option.value {
                None => None,
                Some(value) if value.text == "only" => None,
                Some(value) => {
                    let words = value.split(',');
                    let [offset, length] = words[..] else {
                        return value.wrong("fast_pattern takes only, or an offset and a length");
                    };
                    let part = (unsigned(offset, 16)? as usize, unsigned(length, 16)? as usize);
                    let fits = self.content(at).is_some_and(|content| part.0 + part.1 <= content.bytes.len());
                    if !fits || part.1 == 0 {
                        return value.wrong("that is not a part of the content");
                    }
                    Some(part)
                }
            };
            self.fast = Some((at, part));
        }
        Ok(())
    }

    fn content(&mut self, at: At) -> Option<&mut Content> {
        let step = self.rule.lists.get_mut(at.list)?.steps.get_mut(at.step)?;
        let step = match (step, at.inner) {
            (Step::Decoded(steps), Some(inner)) => steps.get_mut(inner)?,
            (step, _) => step,
        };
        if let Step::Content(content) = step { Some(content) } else { None }
    }

    /// Returns the list for the next step; creates it if needed.
    fn list(&mut self) -> usize {
        if let Some(list) = self.list {
            return list;
        }
        // Naming a buffer again starts a new list, because a buffer may occur several times. The payload occurs once.
        let known = match self.sticky {
            Target::Payload => self.rule.lists.iter().position(|list| list.target == Target::Payload),
            Target::Buffer(_) => None,
        };
        let list = known.unwrap_or_else(|| {
            let list =
                List { target: self.sticky, transforms: Vec::new(), steps: Vec::new(), to_server: None, absent: None };
            self.rule.lists.push(list);
            self.rule.lists.len() - 1
        });
        self.list = Some(list);
        list
    }

    fn push(&mut self, step: Step) -> At {
        // A step relative to a content that was moved to a buffer looks there too.
        let list = match self.last {
            Some(last) if step.is_relative() && self.sticky == Target::Payload && !self.in_decoded => last.list,
            _ => self.list(),
        };
        let steps = &mut self.rule.lists[list].steps;
        if self.in_decoded
            && let Some(Step::Decoded(inner)) = steps.last_mut()
        {
            inner.push(step);
            return At {
                list,
                step: steps.len() - 1,
                inner: Some(match steps.last() {
                    Some(Step::Decoded(inner)) => inner.len() - 1,
                    _ => 0,
                }),
            };
        }
        steps.push(step);
        At { list, step: steps.len() - 1, inner: None }
    }

    /// Moves the newest content to a buffer, for modifiers behind a content.
    fn move_last(&mut self, buffer: Buffer) {
        let Some(at) = self.last.filter(|at| at.inner.is_none()) else { return };
        let step = self.rule.lists[at.list].steps.remove(at.step);
        let target = Target::Buffer(buffer);
        let list = self.rule.lists.iter().position(|list| list.target == target).unwrap_or_else(|| {
            self.rule.lists.push(List {
                target,
                transforms: Vec::new(),
                steps: Vec::new(),
                to_server: None,
                absent: None,
            });
            self.rule.lists.len() - 1
        });
        self.rule.lists[list].steps.push(step);
        let moved = At { list, step: self.rule.lists[list].steps.len() - 1, inner: None };
        if let Some(fast) = &mut self.fast
            && fast.0 == at
        {
            fast.0 = moved;
        }
        self.last = Some(moved);
    }

    fn needs_app(&mut self, word: Word<'_>, buffer: Buffer) -> Read<()> {
        match buffer.about().origin {
            Origin::Packet | Origin::AnyApp => {}
            Origin::Either(one, other) => match self.rule.app {
                Some(known) if !known.includes(one) && !known.includes(other) => {
                    return word.wrong(format!("{} is not of {}", word.text, known.name()));
                }
                _ => {}
            },
            Origin::App(app) => self.set_app(word, app)?,
        }
        Ok(())
    }

    fn set_app(&mut self, word: Word<'_>, app: App) -> Read<()> {
        match self.rule.app {
            Some(known) if app.includes(known) => Ok(()),
            // DNS over HTTP/2 has the buffers of both.
            Some(App::Http | App::Http2) if app == App::Dns => {
                self.rule.app = Some(App::Doh2);
                Ok(())
            }
            Some(known) if !known.includes(app) => word.wrong(format!("{} is not of {}", word.text, known.name())),
            _ => {
                self.rule.app = Some(app);
                Ok(())
            }
        }
    }

    fn finish(mut self, end: usize) -> Read<Rule> {
        let wrong = |reason: &str| Err(Wrong::new(end.saturating_sub(1), reason));
        if self.rule.sid == 0 {
            return wrong("sid is missing, or 0");
        }
        self.rule.quiet |= self.rule.action == Action::Pass && !self.alerts;
        if let Some(priority) = self.priority {
            self.rule.priority = priority;
        }
        // Before empty lists are removed: `fast` refers to a list by index.
        let fast = self.fast.and_then(|(at, part)| {
            let list = self.rule.lists.get(at.list)?;
            let target = list.target;
            let plain = list.transforms.is_empty() && list.absent.is_none() && at.inner.is_none();
            let content = self.content(at)?;
            let bytes = match part {
                Some((offset, length)) => content.bytes.get(offset..offset + length)?,
                None => &content.bytes,
            };
            (plain && !content.negated).then(|| Fast { target, bytes: bytes.to_vec(), end: content.end() })
        });
        self.rule
            .lists
            .retain(|list| !list.steps.is_empty() || list.absent.is_some() || list.target != Target::Payload);
        self.check_ways(end)?;
        for list in &mut self.rule.lists {
            prepare(&mut list.steps);
        }
        self.rule.fast = fast.or_else(|| longest(&self.rule));
        self.rule.scope = self.scope();
        if self.rule.scope != Scope::Transaction
            && let Some(Fast { target: Target::Buffer(_), .. }) = self.rule.fast
        {
            // Packet headers are short: try such a rule on every packet.
            self.rule.fast = None;
        }
        Ok(self.rule)
    }

    /// Rejects rules that inspect both sides of a transaction, unless the header says `=>`.
    fn check_ways(&self, end: usize) -> Read<()> {
        let ways = self.rule.lists.iter().filter_map(|list| match list.target {
            Target::Buffer(buffer) => Some(buffer.about().way),
            Target::Payload => None,
        });
        let ways: Vec<Way> = ways.chain(self.rule.numbers.iter().map(|number| number.0.about().way)).collect();
        let (request, response) = (ways.contains(&Way::Request), ways.contains(&Way::Response));
        if self.rule.header.whole {
            return Ok(());
        }
        let to_server = self.rule.flow.to_server;
        let contradicts = request && (response || to_server == Some(false)) || response && to_server == Some(true);
        if contradicts {
            return Err(Wrong::new(end.saturating_sub(1), "the rule asks for buffers of both directions"));
        }
        Ok(())
    }

    fn scope(&self) -> Scope {
        let rule = &self.rule;
        let of_app = |list: &List| match list.target {
            Target::Buffer(buffer) => buffer.about().origin != Origin::Packet,
            Target::Payload => false,
        };
        if rule.lists.iter().any(of_app) || !rule.numbers.is_empty() || !rule.events.is_empty() {
            return Scope::Transaction;
        }
        let single = rule.packet.iter().any(PacketTest::needs_packet)
            || rule.header.protocol == Protocol::TcpPacket
            || rule.flow.stream == Some(false);
        if !rule.lists.is_empty() {
            let of_packet = rule.lists.iter().any(|list| list.target != Target::Payload);
            return if single || of_packet { Scope::Packet } else { Scope::Payload };
        }
        let header = &rule.header;
        let ports = [&header.source.1, &header.target.1].iter().all(|ports| ports.is_any());
        let exceptions = header.source.0.has_exceptions() || header.target.0.has_exceptions();
        let address_only = !self.any_keyword
            && header.protocol.app().is_none()
            && header.protocol != Protocol::Any
            && ports
            && !exceptions;
        if address_only { Scope::Addresses } else { Scope::Packet }
    }
}

/// Prepares contents and expressions, and marks those that later steps are relative to.
fn prepare(steps: &mut [Step]) {
    // Whether a later step depends on where this one ends.
    let mut behind = false;
    for step in steps.iter_mut().rev() {
        let here = step.is_relative() || behind && !step.moves();
        let next = std::mem::replace(&mut behind, here);
        match step {
            Step::Content(content) => {
                content.relative_next = next;
                content.compile();
            }
            Step::Pcre(pcre) => pcre.relative_next = next,
            Step::Decoded(steps) => prepare(steps),
            _ => {}
        }
    }
}

/// Finds the longest required content.
fn longest(rule: &Rule) -> Option<Fast> {
    let mut best: Option<(&Content, Target)> = None;
    for list in rule.lists.iter().filter(|list| list.transforms.is_empty() && list.absent.is_none()) {
        for step in &list.steps {
            if let Step::Content(content) = step
                && !content.negated
                && best.is_none_or(|best| better(content, list.target, best))
            {
                best = Some((content, list.target));
            }
        }
    }
    best.map(|(content, target)| Fast { target, bytes: content.bytes.clone(), end: content.end() })
}

/// Prefers application buffers, which are shorter than streams, and then longer contents, which are rarer.
fn better(content: &Content, target: Target, best: (&Content, Target)) -> bool {
    let rank = |target: Target| target != Target::Payload;
    (rank(target), content.bytes.len()) > (rank(best.1), best.0.bytes.len())
}

fn unescaped(text: &str) -> String {
    let (mut out, mut escaped) = (String::with_capacity(text.len()), false);
    for letter in text.chars() {
        if letter == '\\' && !escaped {
            escaped = true;
        } else {
            out.push(letter);
            escaped = false;
        }
    }
    out
}

/// Checks `requires`: features, keywords and versions of Suricata that the rule needs.
fn requires(value: Word<'_>) -> Read<()> {
    for word in value.split(',') {
        match word.text.split_ascii_whitespace().next() {
            Some("version" | "feature" | "keyword") => {}
            _ => return word.wrong("requires takes version, feature and keyword"),
        }
        // TLS fingerprints are always supported.
        if let Some(feature) = word.text.strip_prefix("feature ")
            && !matches!(feature.trim(), "ja3" | "ja4")
        {
            return word.wrong("a feature that is asked for is not supported");
        }
    }
    Ok(())
}

fn base64_decode(option: &Opt<'_>) -> Read<Step> {
    let (mut bytes, mut offset, mut relative) = (0, 0, false);
    for word in option.value.map(|value| value.split(',')).unwrap_or_default() {
        let (name, rest) = word.text.split_once(' ').unwrap_or((word.text, ""));
        let rest = Word::new(rest, word.at + name.len() + 1);
        match name {
            "bytes" => bytes = unsigned(rest, 16)? as usize,
            "offset" => offset = unsigned(rest, 16)? as usize,
            "relative" => relative = true,
            other => return word.wrong(format!("base64_decode does not know \u{201c}{other}\u{201d}")),
        }
    }
    Ok(Step::Decode64 { bytes, offset, relative })
}
