//! Passes records whose fields satisfy an expression, and messages whose metadata does.
//!
//! A message passes or is rejected as a whole; its metadata comes first and decides.

use crate::parts::expression::Expression;
use crate::parts::fields::Names;
use filter::batch::places;
use filter::prelude::*;

/// The kind `where`.
pub static KIND: Kind = Kind::new("where", "passes records whose fields fit an expression", make)
    .also(&["filter", "select", "having", "jq"])
    .help(
        "`where EXPRESSION` looks at the fields of each record, by the names that `json` prints: `http.status`, `src_ip`, \
         `dns.rrname`; `streamline schema` lists them. Tests are `=`, `!=`, `<`, `<=`, `>`, `>=`, `in (A, B)`, for texts also \
         `~` and `!~` (a regular expression as for `match`) and `contains`; a name alone asks whether the field is there, or is \
         true. `and`, `or`, `not` and parentheses join them. An address may be compared with a network, a time with \
         `2026-01-02`, `2026-01-02T03:04:05` (UTC) or seconds since 1970, a duration such as `flow.age` with `1min` or `200ms`, or a \
         number in its own unit. Texts with spaces or signs stand in quotes of the other \
         sort: `where \"http.hostname ~ 'example'\"`.\n\n\
         A test of a field that a record has not is false, also with `!=`. A name with several values, such as \
         `dns.answers.rdata`, passes if one of them does. A message passes as a whole, by its metadata; a message without \
         metadata is rejected. `length` and `state` of a message are not known yet when its metadata comes.",
    )
    .params(&[Param::new("expr", ParamType::Text, "condition over fields").main()])
    .takes(&[Type::Record, Type::Message])
    .reads_fields(|params| expression(params).map_or(Vec::new(), |expression| expression.names()))
    .mode(Mode::Session(SessionKey::Class))
    .touches(Parts::DATA.with(Parts::METADATA), Parts::NONE)
    .names_fields(|params, schemas| expression(params)?.check(schemas, "expr").map(|()| Vec::new()))
    .examples(&[Example {
        request: "pcap dns.pcap | dns | where \"dns.type = response and dns.answers.ttl >= 600\" | fields dns.answers.rdata",
        output: "dns.answers.rdata\n35.209.168.153\n35.209.168.153\n",
    }]);

fn expression(params: &Params) -> Result<Expression, ParamError> {
    Expression::parse(params.text("expr").unwrap_or_default(), "expr")
}

fn make(params: &Params, env: &Env) -> Result<Instance, ParamError> {
    let expression = expression(params)?;
    let question = Question { names: Names::new(expression.names(), env), expression };
    match (env.input.has(Type::Message), env.input.has(Type::Record)) {
        (true, true) => Err(ParamError::of_request("both messages and records come here")
            .with_help("give each its own: { a | where ... + b | where ... }")),
        (true, false) => Ok(Instance::session(SessionKey::Class, question)),
        (false, _) => Ok(Instance::filter(question)),
    }
}

struct Question {
    expression: Expression,
    names: Names,
}

impl Question {
    fn is_true(&mut self, bytes: &[u8]) -> bool {
        let Some((row, columns)) = self.names.row(bytes) else { return false };
        self.expression.holds(&row, columns)
    }
}

impl Filter for Question {
    fn run(&mut self, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
        let rings = &*cx.rings;
        batch.keep_if_read(rings, |_, bytes| self.is_true(bytes));
        Ok(Status::Done)
    }
}

/// Filters messages. The state of a class says whether its current message passes.
impl SessionFilter for Question {
    type State = bool;

    fn open(&mut self, _class: Class, _cx: &mut Context<'_>) -> bool {
        false
    }

    fn run(&mut self, passes: &mut bool, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
        let mut kept = 0;
        for place in places(batch.live()) {
            let block = batch.block(place);
            if block.has(Flags::META) {
                *passes = self.is_true(cx.rings.bytes(block));
            }
            kept |= u64::from(*passes) << place;
            if block.has(Flags::LAST) {
                *passes = false;
            }
        }
        batch.keep(kept);
        Ok(Status::Done)
    }

    fn close(&mut self, _state: bool, _class: Class, _why: Closed, _cx: &mut Context<'_>) -> Result<(), Box<Failure>> {
        Ok(())
    }
}
