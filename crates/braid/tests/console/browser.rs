//! Every page in a headless Chromium: by keyboard, dark and light, on a wide screen and a narrow
//! one. With `BRAID_PICTURES=DIR` there is a picture of each.

use std::path::PathBuf;

use testkit::processes::Database;
use testkit::waiting;

use super::devtools::Browser;
use super::up;

/// The pages of the list by the keys that lead to them, and a text that each has.
const LISTED: [(&str, &str, &str); 9] = [
    ("1", "overview", "Active sessions, the last five minutes"),
    ("2", "activity", "Active now"),
    ("3", "transfers", "Transfers"),
    ("4", "statements", "Statements since"),
    ("5", "sessions", "Sessions of clients"),
    ("6", "locks", "Locks"),
    ("7", "redo", "Writes of log and blocks"),
    ("8", "services", "Services"),
    ("9", "doctor", "Doctor"),
];

/// Something on every page: work on both instances, and a tree of locks.
fn work(db: &Database) -> (postgres::Client, std::thread::JoinHandle<()>) {
    let (mut one, mut two) = (db.client(1), db.client(2));
    let made = "create table t(a int primary key, n int); \
                insert into t select g, 0 from generate_series(1, 100) g; select create_snapshot()";
    one.batch_execute(made).expect(made);
    for _ in 0..200 {
        for client in [&mut one, &mut two] {
            let update = "update t set n = n + 1 where a = 7";
            client.batch_execute(update).expect(update);
        }
    }
    let locked = "begin; update t set n = 0 where a = 1";
    one.batch_execute(locked).expect(locked);
    let waiter = std::thread::spawn(move || {
        let update = "update t set n = n + 1 where a = 1";
        two.batch_execute(update).expect(update);
    });
    let mut control = db.client(1);
    let waits = "select count(*) from gv$session where blocking_session is not null";
    waiting::until("a session waits", || {
        testkit::processes::rows(&mut control, waits) == ["1"]
    });
    (one, waiter)
}

/// Waits until the page that the address names is drawn.
fn until_drawn(browser: &mut Browser) {
    browser.until(
        "document.getElementById('state').textContent.startsWith('instance ') \
         && !document.querySelector('main[aria-busy]')",
    );
}

fn log_in(browser: &mut Browser) {
    browser.until("document.activeElement && document.activeElement.id === 'user'");
    browser.types("tester");
    browser.press("Tab");
    browser.press("Enter");
    until_drawn(browser);
}

/// Whether something of the page is wider than the screen, which makes people scroll sideways. What
/// scrolls by itself does not count.
const TOO_WIDE: &str = "document.documentElement.scrollWidth > innerWidth + 1";

#[test]
fn every_page_is_shown_by_a_browser() {
    let Some(mut browser) = Browser::open() else {
        return;
    };
    let (db, port) = up("browser", 2);
    let (mut one, waiter) = work(&db);
    let pictures = std::env::var_os("BRAID_PICTURES").map(PathBuf::from);
    browser.size(1280, 900);
    let address = format!("http://127.0.0.1:{port}/");
    browser.ask("Page.navigate", serde_json::json!({"url": address}));
    log_in(&mut browser);
    // The page before the login has asked, and was refused.
    assert_eq!(browser.complaints("401"), [""; 0]);

    let picture = |browser: &mut Browser, name: &str| {
        if let Some(dir) = &pictures {
            browser.picture(&dir.join(format!("{name}.png")));
        }
    };
    for (width, theme) in [
        (1280, "light"),
        (1280, "dark"),
        (360, "dark"),
        (360, "light"),
    ] {
        browser.size(width, 900);
        let is_other = format!("document.documentElement.dataset.theme !== '{theme}'");
        if browser.value(&is_other) == true {
            browser.press("d");
        }
        for (key, name, text) in LISTED {
            browser.press(key);
            browser.until(&format!("location.hash === '#/{name}'"));
            browser.until(&format!(
                "document.querySelector('main').innerText.includes('{text}')"
            ));
            until_drawn(&mut browser);
            assert_eq!(browser.value(TOO_WIDE), false, "{name} at {width}");
            picture(&mut browser, &format!("{name}-{width}-{theme}"));
        }
        for (place, text) in details(&mut browser) {
            browser.value(&format!("location.hash = {place:?}; 1"));
            browser.until(&format!(
                "document.querySelector('main').innerText.includes('{text}')"
            ));
            until_drawn(&mut browser);
            assert_eq!(browser.value(TOO_WIDE), false, "{place} at {width}");
            let name = place.trim_start_matches("#/").split('?').next();
            picture(
                &mut browser,
                &format!("{}-{width}-{theme}", name.unwrap_or("page")),
            );
        }
        assert_eq!(browser.complaints(""), [""; 0], "{width}, {theme}");
    }
    by_keyboard(&mut browser);
    contrast(&mut browser);
    assert_eq!(browser.complaints(""), [""; 0]);
    one.batch_execute("rollback").expect("the row is free");
    waiter.join().expect("the waiter");
    db.verify();
}

/// The pages that others lead to, each with a text that it has.
fn details(browser: &mut Browser) -> Vec<(String, String)> {
    let mut linked = |key: &str, name: &str| {
        browser.press(key);
        let link = format!("main a[href^=\"#/{name}?\"]");
        browser.until(&format!("document.querySelector('{link}') !== null"));
        let place = browser.value(&format!(
            "document.querySelector('{link}').getAttribute('href')"
        ));
        place.as_str().expect("an address").to_string()
    };
    let statement = linked("4", "statement");
    let session = linked("5", "session");
    vec![
        (statement, "Shared cursor statistics".to_string()),
        (session, "Waits since it came".to_string()),
        (
            "#/history".to_string(),
            "Activity before the last hour".to_string(),
        ),
    ]
}

/// Filters, sorting, keys and the charts' readout need no mouse.
fn by_keyboard(browser: &mut Browser) {
    browser.size(1280, 900);
    browser.press("p");
    browser.until("document.getElementById('pause').textContent === 'Go on'");
    browser.press("4");
    browser.until("document.querySelector('main').innerText.includes('Statements since')");
    browser.press("/");
    browser.until("document.activeElement.type === 'search'");
    browser.types("update t set");
    browser.until(
        "document.querySelectorAll('main tbody tr').length > 0 \
         && [...document.querySelectorAll('main tbody tr')] \
         .every((row) => row.innerText.includes('update t set'))",
    );
    browser.press("Escape");
    browser.until("document.activeElement.type !== 'search'");
    browser.value("document.querySelector('th button').focus(); 1");
    browser.press("Enter");
    browser.until("document.querySelector('th[aria-sort]') !== null");
    browser.press("1");
    browser.until("document.querySelector('.chart') !== null");
    browser.value("document.querySelector('.chart').focus(); 1");
    browser.press("ArrowLeft");
    browser.until("document.querySelector('.readout').textContent.includes(' in all')");
    browser.press("?");
    browser.until("document.getElementById('keys').open");
    // The button that closes it has the focus.
    browser.press("Enter");
    browser.until("!document.getElementById('keys').open");
    browser.press("p");
    browser.until("document.getElementById('pause').textContent === 'Pause'");
}

/// Texts differ from what is behind them as people with weak eyes need it: 4.5 to 1, in both
/// themes.
fn contrast(browser: &mut Browser) {
    let least = "(() => {
        const parts = (colour) => colour.match(/[0-9.]+/g).map(Number);
        const light = (colour) => {
            const [r, g, b] = parts(colour).map((v) => v / 255)
                .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
            return 0.2126 * r + 0.7152 * g + 0.0722 * b;
        };
        const behind = (element) => {
            for (let at = element; at; at = at.parentElement) {
                const colour = getComputedStyle(at).backgroundColor;
                if (parts(colour)[3] !== 0) return colour;
            }
            return 'rgb(255, 255, 255)';
        };
        let least = [99, ''];
        for (const element of document.querySelectorAll('body *')) {
            const own = [...element.childNodes].some((n) => n.nodeType === 3 && n.data.trim());
            if (!own || !element.offsetParent || element.closest('svg')) continue;
            const [a, b] = [light(getComputedStyle(element).color), light(behind(element))];
            const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
            if (ratio < least[0]) least = [ratio, element.outerHTML.slice(0, 200)];
        }
        return least;
    })()";
    for _ in 0..2 {
        browser.press("d");
        for (key, name, text) in LISTED {
            browser.press(key);
            browser.until(&format!(
                "document.querySelector('main').innerText.includes('{text}')"
            ));
            until_drawn(browser);
            let found = browser.value(least);
            assert!(
                found[0].as_f64().is_some_and(|r| r >= 4.5),
                "{name}: {found}"
            );
        }
    }
}
