// Follows the manager: each event is the content of the page, as the server has rendered and escaped it.
"use strict";

const main = document.querySelector("main");
const live = document.querySelector("#live");
let ahead = 0; // how far this machine's clock is ahead of the manager's, in milliseconds

function age(seconds) {
  if (seconds < 60) return seconds + "s";
  if (seconds < 3600) return Math.floor(seconds / 60) + "m";
  if (seconds < 86400) return Math.floor(seconds / 3600) + "h";
  return Math.floor(seconds / 86400) + "d";
}

function tick() {
  for (const time of main.querySelectorAll("time")) {
    time.textContent = age(Math.max(0, Math.floor((Date.now() - ahead - Date.parse(time.dateTime)) / 1000)));
  }
}

function synchronize() {
  ahead = Date.now() - Number(document.querySelector("#taken").dataset.now);
  tick();
}

function follow() {
  const events = new EventSource("status/events" + location.search);
  events.onopen = () => { live.textContent = "Live"; };
  events.onmessage = (event) => {
    main.replaceChildren(...new DOMParser().parseFromString(event.data, "text/html").body.childNodes);
    synchronize();
  };
  events.onerror = () => {
    live.textContent = "The manager does not answer: this is the last state that it sent. Trying again.";
    if (events.readyState === EventSource.CLOSED) setTimeout(follow, 10000);
  };
}

synchronize();
setInterval(tick, 1000);
follow();
