//! Follows paths into documents, as PostgreSQL's `executeJsonPath` does: `jsonb_path_query` and its
//! kin, `@?` and `@@`.

use std::cmp::Ordering;
use std::rc::Rc;

use bigdecimal::RoundingMode;
use block::json::{Json, JsonRef, Node, View};
use block::numeric::Numeric;
use block::value::{Datum, DatumRef};

use super::moment::{self, Moment};
use crate::error::{Error, Result};
use crate::expr::func::PureFunc;
use crate::expr::{ArithOp, from_char, number, regex};
use crate::pgtype::jsonpath::{
    self, Arithmetic, Comparison, DEEPEST, Flags, JsonPath, Method, Path, Step,
};
use crate::pgtype::{self, IoSettings};

/// What is asked of a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Question {
    Exists,
    Match,
    All,
    First,
}

thread_local! {
    /// The path that was read last, with its text: most statements follow one.
    static LAST: std::cell::RefCell<Option<(String, Rc<JsonPath>)>> =
        const { std::cell::RefCell::new(None) };
}

fn read(text: &str) -> Result<Rc<JsonPath>> {
    let kept = LAST.with_borrow(|last| match last {
        Some((of, path)) if of == text => Some(Rc::clone(path)),
        _ => None,
    });
    if let Some(path) = kept {
        return Ok(path);
    }
    let path = Rc::new(jsonpath::parse(text)?);
    LAST.with_borrow_mut(|last| *last = Some((text.to_string(), Rc::clone(&path))));
    Ok(path)
}

/// Answers a question; the arguments are a document, a path, and perhaps variables and whether
/// errors are none.
///
/// `zone`: what times without a time zone are compared in with those that have one.
pub fn call(question: Question, args: &[DatumRef<'_>], zone: Option<&IoSettings>) -> Result<Datum> {
    let [DatumRef::Json(document), DatumRef::Text(path), rest @ ..] = args else {
        return Err(Error::internal(format!("a path through {args:?}")));
    };
    let vars = match rest.first() {
        Some(DatumRef::Json(vars)) => Some(*vars),
        _ => None,
    };
    let silent = matches!(rest.get(1), Some(DatumRef::Bool(true)));
    if let Some(vars) = vars
        && !matches!(vars.view(), View::Object(_))
    {
        return Err(
            Error::new("22023", "\"vars\" argument is not an object").detail(
                "Jsonpath parameters should be encoded as key-value pairs of \"vars\" object.",
            ),
        );
    }
    let path = read(path)?;
    let root = Item::Part(*document);
    let mut follower = Follower {
        current: root.clone(),
        root,
        document: *document,
        vars,
        lax: !path.strict,
        ignores: !path.strict,
        throws: !silent,
        zone,
        size: None,
    };
    answer(question, &mut follower, &path.path, silent)
}

fn answer(
    question: Question,
    follower: &mut Follower<'_>,
    path: &[Step],
    silent: bool,
) -> Result<Datum> {
    let root = follower.root.clone();
    let mut found = Vec::new();
    let exists_only = question == Question::Exists && follower.lax;
    let sink = (!exists_only).then_some(&mut found);
    let end = match follower.follow(path, &root, sink) {
        Ok(end) => end,
        Err(Fail::Loud(e)) => return Err(e),
        Err(Fail::Quiet) if matches!(question, Question::Exists | Question::Match) => {
            return Ok(Datum::Null);
        }
        // What was found before the error is the answer.
        Err(Fail::Quiet) => End::Found,
    };
    let json = |item: &Item<'_>| Datum::Json(Json::new(&item.node()));
    Ok(match question {
        Question::Exists if exists_only => Datum::Bool(end == End::Found),
        Question::Exists => Datum::Bool(!found.is_empty()),
        Question::Match => match found.as_slice() {
            [one] => match one.view() {
                View::Bool(b) => Datum::Bool(b),
                View::Null => Datum::Null,
                _ if silent => Datum::Null,
                _ => return Err(no_boolean()),
            },
            _ if silent => Datum::Null,
            _ => return Err(no_boolean()),
        },
        Question::All => {
            let items = found.iter().map(Item::node).collect();
            Datum::Json(Json::new(&Node::Array(items)))
        }
        Question::First => found.first().map_or(Datum::Null, json),
    })
}

fn no_boolean() -> Error {
    Error::new("22038", "single boolean result is expected")
}

/// Refuses what `like_regex` cannot match.
pub fn check_pattern(pattern: &str, flags: Flags) -> Result<()> {
    matches("", pattern, flags).map(|_| ())
}

fn matches(text: &str, pattern: &str, flags: Flags) -> Result<bool> {
    let how = regex::Flags {
        fold_case: flags.fold_case,
        stops_at_newline: !flags.quoted && !flags.dot_all,
        anchors_at_newline: !flags.quoted && flags.multiline,
        literal: flags.quoted,
        ..regex::Flags::default()
    };
    regex::matches_with(text, pattern, how)
}

/// A value on the way: a part of a document, or one that was made.
#[derive(Clone)]
enum Item<'a> {
    Part(JsonRef<'a>),
    Made(Rc<Json>),
    /// A date or time, which is its text to whoever asks for no more.
    Moment(Rc<Moment>),
}

impl<'a> Item<'a> {
    fn made(node: Node) -> Item<'a> {
        Item::Made(Rc::new(Json::new(&node)))
    }

    fn number(n: Numeric) -> Item<'a> {
        Item::made(Node::Number(n))
    }

    fn view(&self) -> View<'_> {
        match self {
            Item::Part(json) => json.view(),
            Item::Made(json) => json.borrow().view(),
            Item::Moment(moment) => moment.text.borrow().view(),
        }
    }

    /// What it is to steps that take it for no text.
    fn plain(&self) -> View<'_> {
        match self {
            Item::Moment(_) => View::Null,
            item => item.view(),
        }
    }

    fn node(&self) -> Node {
        Node::Whole(match self {
            Item::Part(json) => json.to_json(),
            Item::Made(json) => (**json).clone(),
            Item::Moment(moment) => moment.text.clone(),
        })
    }

    fn is_array(&self) -> bool {
        matches!(self.view(), View::Array(_))
    }

    fn is_container(&self) -> bool {
        matches!(self.view(), View::Array(_) | View::Object(_))
    }

    /// The elements of an array, or the values of an object; none of anything else.
    fn parts(&self) -> Vec<Item<'a>> {
        let owned = |json: JsonRef<'_>| Item::Made(Rc::new(json.to_json()));
        match self {
            Item::Part(json) => match json.view() {
                View::Array(items) => items.iter().map(Item::Part).collect(),
                View::Object(pairs) => pairs.iter().map(|(_, v)| Item::Part(v)).collect(),
                _ => Vec::new(),
            },
            Item::Made(json) => match json.borrow().view() {
                View::Array(items) => items.iter().map(owned).collect(),
                View::Object(pairs) => pairs.iter().map(|(_, v)| owned(v)).collect(),
                _ => Vec::new(),
            },
            Item::Moment(_) => Vec::new(),
        }
    }

    /// The value of a key of an object.
    fn member(&self, key: &str) -> Option<Item<'a>> {
        match self {
            Item::Part(json) => match json.view() {
                View::Object(pairs) => pairs
                    .iter()
                    .find(|(k, _)| *k == key)
                    .map(|(_, v)| Item::Part(v)),
                _ => None,
            },
            Item::Made(json) => match json.borrow().view() {
                View::Object(pairs) => {
                    let found = pairs.iter().find(|(k, _)| *k == key);
                    found.map(|(_, v)| Item::Made(Rc::new(v.to_json())))
                }
                _ => None,
            },
            Item::Moment(_) => None,
        }
    }
}

/// Whether something is at the end of a path.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Found,
    Nothing,
}

/// An error that is told, or one that only ends what follows a path.
enum Fail {
    Loud(Error),
    Quiet,
}

impl From<Error> for Fail {
    fn from(e: Error) -> Fail {
        Fail::Loud(e)
    }
}

type Followed<T> = std::result::Result<T, Fail>;
type Sink<'s, 'a> = Option<&'s mut Vec<Item<'a>>>;

struct Follower<'a> {
    root: Item<'a>,
    current: Item<'a>,
    document: JsonRef<'a>,
    vars: Option<JsonRef<'a>>,
    lax: bool,
    /// Whether what is not there is no error.
    ignores: bool,
    throws: bool,
    /// Where times without a zone are; `None`: they are nowhere.
    zone: Option<&'a IoSettings>,
    /// Elements of the array around a subscript.
    size: Option<usize>,
}

impl<'a> Follower<'a> {
    fn fail<T>(&self, state: &'static str, message: String) -> Followed<T> {
        Err(match self.throws {
            true => Fail::Loud(Error::new(state, message)),
            false => Fail::Quiet,
        })
    }

    fn follow(&mut self, path: &[Step], at: &Item<'a>, found: Sink<'_, 'a>) -> Followed<End> {
        let unwraps = self.lax;
        self.step(path, at, found, unwraps)
    }

    /// Goes on behind the first step of a path, with what it has led to.
    fn go_on(&mut self, path: &[Step], item: Item<'a>, found: Sink<'_, 'a>) -> Followed<End> {
        match &path[1..] {
            [] => {
                if let Some(found) = found {
                    found.push(item);
                }
                Ok(End::Found)
            }
            rest => self.follow(rest, &item, found),
        }
    }

    /// Goes on from each of several items; one is enough if it is only asked whether there are
    /// some.
    fn each(
        &mut self,
        items: Vec<Item<'a>>,
        mut found: Sink<'_, 'a>,
        mut go: impl FnMut(&mut Self, Item<'a>, Sink<'_, 'a>) -> Followed<End>,
    ) -> Followed<End> {
        let mut end = End::Nothing;
        for item in items {
            if go(self, item, found.as_deref_mut())? == End::Found {
                end = End::Found;
                if found.is_none() {
                    break;
                }
            }
        }
        Ok(end)
    }

    /// The step, once more of each element of an array.
    fn unwrapped(&mut self, path: &[Step], at: &Item<'a>, found: Sink<'_, 'a>) -> Followed<End> {
        self.each(at.parts(), found, |f, item, found| {
            f.step(path, &item, found, false)
        })
    }

    fn step(
        &mut self,
        path: &[Step],
        at: &Item<'a>,
        found: Sink<'_, 'a>,
        unwraps: bool,
    ) -> Followed<End> {
        let takes_apart = unwraps && at.is_array();
        match &path[0] {
            Step::Null => self.go_on(path, Item::made(Node::Null), found),
            Step::Bool(b) => self.go_on(path, Item::made(Node::Bool(*b)), found),
            Step::Number(n) => self.go_on(path, Item::number(n.clone()), found),
            Step::String(s) => self.go_on(path, Item::made(Node::String(s.clone())), found),
            Step::Variable(name) => {
                let value = self.variable(name)?;
                self.go_on(path, value, found)
            }
            Step::Root => self.go_on(path, self.root.clone(), found),
            Step::Current => self.go_on(path, self.current.clone(), found),
            Step::Last => {
                let last = self.size.map_or(-1, |size| size as i64 - 1);
                self.go_on(path, Item::number(number::from_i64(last)), found)
            }
            Step::Arithmetic(how, sides) => self.arithmetic(path, *how, sides, at, found),
            Step::Signed { negative, of } => self.signed(path, *negative, of, at, found),
            Step::And(_)
            | Step::Or(_)
            | Step::Not(_)
            | Step::IsUnknown(_)
            | Step::Exists(_)
            | Step::Compare(..)
            | Step::StartsWith(_)
            | Step::LikeRegex { .. } => {
                let truth = self.truth(&path[0], at)?;
                let node = truth.map_or(Node::Null, Node::Bool);
                self.go_on(path, Item::made(node), found)
            }
            Step::Key(_) | Step::AnyKey | Step::Filter(_) if takes_apart => {
                self.unwrapped(path, at, found)
            }
            Step::Key(key) => self.key(path, key, at, found),
            Step::AnyKey => match at.view() {
                View::Object(_) => {
                    let items = at.parts();
                    self.all_parts(path, items, found)
                }
                _ if self.ignores => Ok(End::Nothing),
                _ => self.fail(
                    "2203C",
                    "jsonpath wildcard member accessor can only be applied to an object".into(),
                ),
            },
            Step::AnyElement => match at.view() {
                View::Array(_) => {
                    let items = at.parts();
                    self.all_parts(path, items, found)
                }
                _ if self.lax => self.go_on(path, at.clone(), found),
                _ if self.ignores => Ok(End::Nothing),
                _ => self.fail(
                    "22039",
                    "jsonpath wildcard array accessor can only be applied to an array".into(),
                ),
            },
            Step::Elements(subscripts) => self.elements(path, subscripts, at, found),
            Step::Any { first, last } => self.any(path, *first, *last, at, found),
            Step::Filter(condition) => {
                let before = std::mem::replace(&mut self.current, at.clone());
                let truth = self.predicate(condition, at);
                self.current = before;
                match truth? {
                    Some(true) => self.go_on(path, at.clone(), found),
                    _ => Ok(End::Nothing),
                }
            }
            Step::Method(Method::Type | Method::Size) => self.plain_method(path, at, found),
            Step::Method(_) if takes_apart => self.unwrapped(path, at, found),
            Step::DateTime(_) if takes_apart => self.unwrapped(path, at, found),
            Step::DateTime(template) => {
                let moment = self.moment(template.as_deref(), at)?;
                self.go_on(path, Item::Moment(Rc::new(moment)), found)
            }
            Step::Method(Method::KeyValue) => self.key_values(path, at, found),
            Step::Method(method) => {
                let value = self.numeric_method(*method, at)?;
                self.go_on(path, Item::number(value), found)
            }
        }
    }

    /// What a wildcard leads to, and on.
    fn all_parts(
        &mut self,
        path: &[Step],
        items: Vec<Item<'a>>,
        found: Sink<'_, 'a>,
    ) -> Followed<End> {
        self.each(items, found, |f, item, found| f.go_on(path, item, found))
    }

    fn variable(&mut self, name: &str) -> Followed<Item<'a>> {
        let vars = self.vars.map(Item::Part);
        let found = vars.and_then(|vars| vars.member(name));
        found.ok_or_else(|| {
            let message = format!("could not find jsonpath variable \"{name}\"");
            Fail::Loud(Error::new("42704", message))
        })
    }

    fn key(
        &mut self,
        path: &[Step],
        key: &str,
        at: &Item<'a>,
        found: Sink<'_, 'a>,
    ) -> Followed<End> {
        if let View::Object(_) = at.view() {
            return match at.member(key) {
                Some(value) => self.go_on(path, value, found),
                None if self.ignores => Ok(End::Nothing),
                None => {
                    let mut shown = Vec::new();
                    shown.extend_from_slice(key.as_bytes());
                    let key = String::from_utf8_lossy(&shown);
                    self.fail(
                        "2203A",
                        format!("JSON object does not contain key \"{key}\""),
                    )
                }
            };
        }
        match self.ignores {
            true => Ok(End::Nothing),
            false => self.fail(
                "2203A",
                "jsonpath member accessor can only be applied to an object".into(),
            ),
        }
    }

    fn elements(
        &mut self,
        path: &[Step],
        subscripts: &[(Path, Option<Path>)],
        at: &Item<'a>,
        mut found: Sink<'_, 'a>,
    ) -> Followed<End> {
        let items = match at.is_array() {
            true => at.parts(),
            false if self.lax => vec![at.clone()],
            false if self.ignores => return Ok(End::Nothing),
            false => {
                return self.fail(
                    "22039",
                    "jsonpath array accessor can only be applied to an array".into(),
                );
            }
        };
        let around = self.size.replace(items.len());
        let mut end = End::Nothing;
        let mut walk = || -> Followed<()> {
            for (from, to) in subscripts {
                let from = self.place(from, at)?;
                let to = match to {
                    Some(to) => self.place(to, at)?,
                    None => from,
                };
                let count = items.len() as i64;
                if !self.ignores && (from < 0 || from > to || to >= count) {
                    let message = "jsonpath array subscript is out of bounds";
                    self.fail::<()>("22033", message.into())?;
                }
                for place in from.max(0)..=to.min(count - 1) {
                    let item = items[place as usize].clone();
                    if self.go_on(path, item, found.as_deref_mut())? == End::Found {
                        end = End::Found;
                        if found.is_none() {
                            return Ok(());
                        }
                    }
                }
            }
            Ok(())
        };
        let walked = walk();
        self.size = around;
        walked.map(|()| end)
    }

    /// The number that a subscript is.
    fn place(&mut self, path: &[Step], at: &Item<'a>) -> Followed<i64> {
        let mut found = Vec::new();
        self.follow(path, at, Some(&mut found))?;
        let [one] = found.as_slice() else {
            return self.no_place();
        };
        let View::Number(n) = one.view() else {
            return self.no_place();
        };
        let whole = number::function(PureFunc::TruncTo, n, 0)?;
        match number::to_i64(whole.borrow()).filter(|n| i32::try_from(*n).is_ok()) {
            Some(place) => Ok(place),
            None => self.fail(
                "22033",
                "jsonpath array subscript is out of integer range".into(),
            ),
        }
    }

    fn no_place(&self) -> Followed<i64> {
        self.fail(
            "22033",
            "jsonpath array subscript is not a single numeric value".into(),
        )
    }

    /// `**`
    fn any(
        &mut self,
        path: &[Step],
        first: u32,
        last: u32,
        at: &Item<'a>,
        mut found: Sink<'_, 'a>,
    ) -> Followed<End> {
        let mut end = End::Nothing;
        if first == 0 {
            let before = std::mem::replace(&mut self.ignores, true);
            let here = self.go_on(path, at.clone(), found.as_deref_mut());
            self.ignores = before;
            end = here?;
            if end == End::Found && found.is_none() {
                return Ok(end);
            }
        }
        let below = self.below(path, at, 1, (first, last), found)?;
        Ok(if below == End::Found { below } else { end })
    }

    /// What is within an item, at these levels.
    fn below(
        &mut self,
        path: &[Step],
        at: &Item<'a>,
        level: u32,
        (first, last): (u32, u32),
        found: Sink<'_, 'a>,
    ) -> Followed<End> {
        if level > last {
            return Ok(End::Nothing);
        }
        self.each(at.parts(), found, |f, item, mut found| {
            let mut end = End::Nothing;
            let leaves = first == DEEPEST && last == DEEPEST;
            if level >= first || leaves && !item.is_container() {
                let before = std::mem::replace(&mut f.ignores, true);
                let here = f.go_on(path, item.clone(), found.as_deref_mut());
                f.ignores = before;
                end = here?;
                if end == End::Found && found.is_none() {
                    return Ok(end);
                }
            }
            if level < last && item.is_container() {
                let below = f.below(path, &item, level + 1, (first, last), found)?;
                if below == End::Found {
                    end = below;
                }
            }
            Ok(end)
        })
    }

    /// What an operand comes to, with the elements of arrays in their place.
    fn values(&mut self, path: &[Step], at: &Item<'a>) -> Followed<Vec<Item<'a>>> {
        let mut found = Vec::new();
        self.follow(path, at, Some(&mut found))?;
        if !self.lax {
            return Ok(found);
        }
        let apart = |item: Item<'a>| match item.is_array() {
            true => item.parts(),
            false => vec![item],
        };
        Ok(found.into_iter().flat_map(apart).collect())
    }

    /// What `go` comes to, or nothing if it fails.
    fn quietly<T>(&mut self, go: impl FnOnce(&mut Self) -> Followed<T>) -> Followed<Option<T>> {
        let before = std::mem::replace(&mut self.throws, false);
        let end = go(self);
        self.throws = before;
        match end {
            Ok(value) => Ok(Some(value)),
            Err(Fail::Quiet) => Ok(None),
            Err(loud) => Err(loud),
        }
    }

    fn arithmetic(
        &mut self,
        path: &[Step],
        how: Arithmetic,
        sides: &[Path; 2],
        at: &Item<'a>,
        found: Sink<'_, 'a>,
    ) -> Followed<End> {
        let left = self.values(&sides[0], at)?;
        let right = self.values(&sides[1], at)?;
        let operand = |items: &[Item<'a>]| match items {
            [one] => match one.view() {
                View::Number(n) => Some(n.to_numeric()),
                _ => None,
            },
            _ => None,
        };
        let missing = |side: &str| {
            let symbol = how.symbol();
            format!("{side} operand of jsonpath operator {symbol} is not a single numeric value")
        };
        let Some(l) = operand(&left) else {
            return self.fail("22038", missing("left"));
        };
        let Some(r) = operand(&right) else {
            return self.fail("22038", missing("right"));
        };
        let op = match how {
            Arithmetic::Add => ArithOp::Add,
            Arithmetic::Sub => ArithOp::Sub,
            Arithmetic::Mul => ArithOp::Mul,
            Arithmetic::Div => ArithOp::Div,
            Arithmetic::Mod => ArithOp::Mod,
        };
        match number::apply(op, l.borrow(), r.borrow()) {
            Ok(result) => self.go_on(path, Item::number(result), found),
            Err(e) if self.throws => Err(Fail::Loud(e)),
            Err(_) => Err(Fail::Quiet),
        }
    }

    fn signed(
        &mut self,
        path: &[Step],
        negative: bool,
        of: &[Step],
        at: &Item<'a>,
        found: Sink<'_, 'a>,
    ) -> Followed<End> {
        let items = self.values(of, at)?;
        self.each(items, found, |f, item, found| {
            let View::Number(n) = item.view() else {
                if found.is_none() && path.len() == 1 {
                    return Ok(End::Nothing);
                }
                let symbol = if negative { '-' } else { '+' };
                return f.fail(
                    "2203B",
                    format!("operand of unary jsonpath operator {symbol} is not a numeric value"),
                );
            };
            let n = if negative {
                number::negate(n)
            } else {
                n.to_numeric()
            };
            f.go_on(path, Item::number(n), found)
        })
    }

    fn plain_method(&mut self, path: &[Step], at: &Item<'a>, found: Sink<'_, 'a>) -> Followed<End> {
        let made = match (&path[0], at.view()) {
            (Step::Method(Method::Type), _) if let Item::Moment(moment) = at => {
                Node::String(moment.type_name().to_string())
            }
            (Step::Method(Method::Type), view) => Node::String(type_name(view).to_string()),
            (_, View::Array(items)) => Node::Number(number::from_i64(items.len() as i64)),
            _ if self.lax => Node::Number(number::from_i64(1)),
            _ if self.ignores => return Ok(End::Nothing),
            _ => {
                return self.fail(
                    "22039",
                    "jsonpath item method .size() can only be applied to an array".into(),
                );
            }
        };
        self.go_on(path, Item::made(made), found)
    }

    fn moment(&self, template: Option<&str>, at: &Item<'a>) -> Followed<Moment> {
        let View::String(text) = at.plain() else {
            let message = "jsonpath item method .datetime() can only be applied to a string";
            return self.fail("22031", message.into());
        };
        if let Some(template) = template {
            from_char::check_standard(template)?;
        }
        Moment::read(text, template).map_err(|e| match self.throws {
            true => Fail::Loud(e),
            false => Fail::Quiet,
        })
    }

    fn numeric_method(&mut self, method: Method, at: &Item<'a>) -> Followed<Numeric> {
        let name = method.name();
        let rounded = |n: Numeric, mode| match n.to_bigdecimal() {
            Some(d) => Numeric::from_bigdecimal(d.with_scale_round(0, mode)),
            None => n,
        };
        match (method, at.plain()) {
            (Method::Double, View::Number(n)) => self.double(&n.to_string(), "numeric"),
            (Method::Double, View::String(s)) => self.double(s, "string"),
            (Method::Double, _) => self.fail(
                "22036",
                format!("jsonpath item method .{name}() can only be applied to a string or numeric value"),
            ),
            (Method::Abs, View::Number(n)) => Ok(number::function(PureFunc::Abs, n, 0)?),
            (Method::Floor, View::Number(n)) => Ok(rounded(n.to_numeric(), RoundingMode::Floor)),
            (_, View::Number(n)) => Ok(rounded(n.to_numeric(), RoundingMode::Ceiling)),
            _ => self.fail(
                "22036",
                format!("jsonpath item method .{name}() can only be applied to a numeric value"),
            ),
        }
    }

    fn double(&self, text: &str, what: &str) -> Followed<Numeric> {
        let read = pgtype::parse_float8(text).ok().filter(|f| f.is_finite());
        match read {
            Some(f) => Ok(number::from_f64(f)?),
            None if what == "numeric" => self.fail(
                "22036",
                "numeric argument of jsonpath item method .double() is out of range for type \
                 double precision"
                    .into(),
            ),
            None => self.fail(
                "22036",
                "string argument of jsonpath item method .double() is not a valid representation \
                 of a double precision number"
                    .into(),
            ),
        }
    }

    /// Objects of the keys and values of an object. Their `id` says which object they are of.
    fn key_values(&mut self, path: &[Step], at: &Item<'a>, found: Sink<'_, 'a>) -> Followed<End> {
        let View::Object(pairs) = at.view() else {
            return self.fail(
                "2203C",
                "jsonpath item method .keyvalue() can only be applied to an object".into(),
            );
        };
        let id = match at {
            Item::Part(part) => {
                let (start, all) = (part.as_bytes().as_ptr() as usize, self.document.as_bytes());
                start.saturating_sub(all.as_ptr() as usize) as i64
            }
            Item::Made(_) | Item::Moment(_) => 0,
        };
        let object = |(key, value): (&str, JsonRef<'_>)| {
            Item::made(Node::Object(vec![
                ("key".to_string(), Node::String(key.to_string())),
                ("value".to_string(), Node::Whole(value.to_json())),
                ("id".to_string(), Node::Number(number::from_i64(id))),
            ]))
        };
        let items = pairs.iter().map(object).collect();
        self.all_parts(path, items, found)
    }

    fn predicate(&mut self, path: &[Step], at: &Item<'a>) -> Followed<Option<bool>> {
        self.truth(&path[0], at)
    }

    /// Whether a predicate holds; `None`: nobody knows.
    fn truth(&mut self, step: &Step, at: &Item<'a>) -> Followed<Option<bool>> {
        Ok(match step {
            Step::And(sides) => match self.predicate(&sides[0], at)? {
                Some(false) => Some(false),
                left => match self.predicate(&sides[1], at)? {
                    Some(true) => left,
                    right => right,
                },
            },
            Step::Or(sides) => match self.predicate(&sides[0], at)? {
                Some(true) => Some(true),
                left => match self.predicate(&sides[1], at)? {
                    Some(false) => left,
                    right => right,
                },
            },
            Step::Not(of) => self.predicate(of, at)?.map(|truth| !truth),
            Step::IsUnknown(of) => Some(self.predicate(of, at)?.is_none()),
            Step::Exists(of) if self.lax => {
                let end = self.quietly(|f| f.follow(of, at, None))?;
                end.map(|end| end == End::Found)
            }
            Step::Exists(of) => {
                let found = self.quietly(|f| f.values(of, at))?;
                found.map(|found| !found.is_empty())
            }
            Step::Compare(how, sides) => {
                let (how, zone, mut failed) = (*how, self.zone, None);
                let truth = self.pairs(&sides[0], Some((&sides[1], true)), at, |l, r| {
                    compared(how, l, r, zone).unwrap_or_else(|e| {
                        failed.get_or_insert(e);
                        None
                    })
                })?;
                if let Some(e) = failed {
                    return Err(Fail::Loud(e));
                }
                truth
            }
            Step::StartsWith(sides) => {
                let starts = |l: &Item<'_>, r: &Item<'_>| match (l.plain(), r.plain()) {
                    (View::String(all), View::String(start)) => Some(all.starts_with(start)),
                    _ => None,
                };
                self.pairs(&sides[0], Some((&sides[1], false)), at, starts)?
            }
            Step::LikeRegex { of, pattern, flags } => {
                let mut failed = None;
                let like = |l: &Item<'_>, _: &Item<'_>| match l.plain() {
                    View::String(s) => match matches(s, pattern, *flags) {
                        Ok(found) => Some(found),
                        Err(e) => {
                            failed = Some(e);
                            None
                        }
                    },
                    _ => None,
                };
                let truth = self.pairs(of, None, at, like)?;
                if let Some(e) = failed {
                    return Err(Fail::Loud(e));
                }
                truth
            }
            other => {
                return Err(Fail::Loud(Error::internal(format!(
                    "{other:?} as a predicate"
                ))));
            }
        })
    }

    /// Whether a relation holds between some of the values on its sides.
    fn pairs(
        &mut self,
        left: &[Step],
        right: Option<(&Path, bool)>,
        at: &Item<'a>,
        mut holds: impl FnMut(&Item<'a>, &Item<'a>) -> Option<bool>,
    ) -> Followed<Option<bool>> {
        let Some(lefts) = self.quietly(|f| f.values(left, at))? else {
            return Ok(None);
        };
        let rights = match right {
            None => vec![Item::made(Node::Null)],
            Some((path, unwraps)) => {
                let read = self.quietly(|f| match unwraps {
                    true => f.values(path, at),
                    false => {
                        let mut found = Vec::new();
                        f.follow(path, at, Some(&mut found))?;
                        Ok(found)
                    }
                })?;
                let Some(rights) = read else { return Ok(None) };
                rights
            }
        };
        let (mut found, mut unknown) = (false, false);
        for l in &lefts {
            for r in &rights {
                match holds(l, r) {
                    None if !self.lax => return Ok(None),
                    None => unknown = true,
                    Some(true) if self.lax => return Ok(Some(true)),
                    Some(true) => found = true,
                    Some(false) => {}
                }
            }
        }
        Ok(match (found, unknown) {
            (true, _) => Some(true),
            (false, true) => None,
            (false, false) => Some(false),
        })
    }
}

fn type_name(view: View<'_>) -> &'static str {
    match view {
        View::Null => "null",
        View::Bool(_) => "boolean",
        View::Number(_) => "number",
        View::String(_) => "string",
        View::Array(_) => "array",
        View::Object(_) => "object",
    }
}

fn compared(
    how: Comparison,
    left: &Item<'_>,
    right: &Item<'_>,
    zone: Option<&IoSettings>,
) -> Result<Option<bool>> {
    let order = match (left, right) {
        (Item::Moment(l), Item::Moment(r)) => moment::compared(l, r, zone)?,
        (Item::Moment(_), other) | (other, Item::Moment(_)) => {
            // NULL is no other value.
            let is_null = matches!(other.view(), View::Null);
            return Ok(is_null.then_some(how == Comparison::NotEqual));
        }
        (left, right) => return Ok(compared_views(how, left.view(), right.view())),
    };
    Ok(order.map(|order| holds(how, order)))
}

fn compared_views(how: Comparison, left: View<'_>, right: View<'_>) -> Option<bool> {
    let order = match (left, right) {
        (View::Null, View::Null) => Ordering::Equal,
        (View::Bool(l), View::Bool(r)) => l.cmp(&r),
        (View::Number(l), View::Number(r)) => l.cmp(&r),
        (View::String(l), View::String(r)) => l.as_bytes().cmp(r.as_bytes()),
        // NULL is no other value.
        (View::Null, _) | (_, View::Null) => return Some(how == Comparison::NotEqual),
        _ => return None,
    };
    Some(holds(how, order))
}

fn holds(how: Comparison, order: Ordering) -> bool {
    match how {
        Comparison::Equal => order.is_eq(),
        Comparison::NotEqual => order.is_ne(),
        Comparison::Less => order.is_lt(),
        Comparison::Greater => order.is_gt(),
        Comparison::LessOrEqual => order.is_le(),
        Comparison::GreaterOrEqual => order.is_ge(),
    }
}
