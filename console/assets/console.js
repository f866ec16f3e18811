// What the console has beyond reading: times in the reader's zone, and pages that keep up with what they show.
"use strict";
(() => {
	const every = 5000;
	const zone = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });

	// Times are in UTC in the page. The exact value stays in the title.
	function localTimes(root) {
		for (const t of root.querySelectorAll("time[data-show]")) {
			const at = new Date(t.dateTime);
			if (isNaN(at)) continue;
			t.title = zone.format(at) + " here, " + t.dateTime + " exactly";
			if (t.dataset.show === "time") t.textContent = zone.format(at);
		}
	}

	const main = document.getElementById("main");
	const said = document.getElementById("said");
	const offline = document.getElementById("offline");
	const hold = document.getElementById("hold");
	localTimes(document);
	if (!("live" in document.body.dataset)) return;

	let held = false;
	hold.hidden = false;
	hold.addEventListener("click", () => {
		held = !held;
		hold.setAttribute("aria-pressed", String(held));
		said.textContent = held ? "This page stands still. What it shows grows old." : "";
		if (!held) refresh();
	});

	// A page that somebody is using is left alone: a chosen text, an open list, a field.
	function inUse() {
		const at = document.activeElement;
		if (at && main.contains(at) && /^(INPUT|SELECT|TEXTAREA)$/.test(at.tagName)) return true;
		const chosen = document.getSelection();
		return chosen && !chosen.isCollapsed && main.contains(chosen.anchorNode);
	}

	// Where the reader is: the way to the focused element, what is open, how far each table is moved.
	function way(el) {
		const steps = [];
		for (; el && el !== main; el = el.parentElement) steps.unshift([...el.parentElement.children].indexOf(el));
		return steps;
	}
	function at(steps) {
		return steps.reduce((el, i) => el && el.children[i], main);
	}

	function show(next) {
		const focused = main.contains(document.activeElement) && document.activeElement !== main ? way(document.activeElement) : null;
		const open = [...main.querySelectorAll("details[open]")].map(way);
		const moved = [...main.querySelectorAll(".table, pre")].map((el) => el.scrollLeft);
		const verdict = main.querySelector("#verdict")?.textContent;
		localTimes(next);
		main.replaceChildren(...next.childNodes);
		for (const steps of open) {
			const el = at(steps);
			if (el && el.tagName === "DETAILS") el.open = true;
		}
		main.querySelectorAll(".table, pre").forEach((el, i) => { if (moved[i]) el.scrollLeft = moved[i]; });
		if (focused) at(focused)?.focus({ preventScroll: true });
		const now = main.querySelector("#verdict")?.textContent;
		if (now && now !== verdict) said.textContent = now;
	}

	let last = Date.now(), asking = false;
	async function refresh() {
		if (held || asking || document.hidden || inUse()) return;
		asking = true;
		try {
			const answer = await fetch(location.href, { headers: { Accept: "text/html" }, signal: AbortSignal.timeout(20000) });
			const next = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("main");
			if (!next) throw new Error(answer.status);
			if (!held && !inUse()) show(next);
			last = Date.now();
			offline.hidden = true;
			document.body.classList.remove("stale");
		} catch {
			offline.textContent = "The console does not answer. What you see is as it was at " + zone.format(last) + ".";
			offline.hidden = false;
			document.body.classList.add("stale");
		} finally {
			asking = false;
		}
	}
	setInterval(refresh, every);
	document.addEventListener("visibilitychange", () => { if (!document.hidden) refresh(); });
})();
