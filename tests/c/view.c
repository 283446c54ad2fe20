/* A session as a page and as text, and what is refused. */
#include "check.h"

#define SCRIPT "{\"kind\":\"scripted\",\"otherwise\":{\"text\":\"<script>alert(1)</script>\\u001b[2J\",\"usage\":{\"inputTokens\":7,\"outputTokens\":2}}}"

static tw_str show(tw_status (*render)(tw_session *, tw_str, tw_buf **, tw_error **), tw_session *session,
                   const char *options, tw_buf **shown) {
    OK(render(session, str(options), shown, &error));
    return tw_buf_str(*shown);
}

static void a_session_is_shown(const char *mode) {
    world w;
    tw_session *session = NULL;
    tw_buf *page = NULL, *text = NULL, *none = NULL;
    world_open(&w, mode);
    world_model(&w, SCRIPT);
    world_agent(&w);
    world_run(&w, "\"hello there\"", "alert");
    OK(tw_agent_session(w.agent, &session, &error));
    tw_str html = show(tw_session_html, session, "", &page);
    CHECK(contains(html, "<!doctype html>") && contains(html, "</html>") && contains(html, "hello there"));
    CHECK(contains(html, "&lt;script&gt;alert(1)") && !contains(html, "<script>") && !contains(html, "\033"));
    tw_str timeline = show(tw_session_text, session, "{\"full\":true}", &text);
    CHECK(contains(timeline, "turn 1 completed") && contains(timeline, "<script>") && !contains(timeline, "\033"));
    CHECK(contains(timeline, "7 tokens in, 2 out"));
    tw_buf_free(text);
    EXPECT(TW_E_UNKNOWN_OPTION, tw_session_html(session, TW_STR("{\"full\":true}"), &none, &error));
    EXPECT(TW_E_INVALID_ARGUMENT, tw_session_text(session, TW_STR("{\"prices\":{\"m/x\":{}}}"), &none, &error));
    CHECK(none == NULL);
    tw_buf_free(page);
    tw_session_release(session);
    world_close(&w);
    CHECK(tw_handle_count() == 0);
}

int main(void) {
    a_session_is_shown("");
    a_session_is_shown("{\"mode\":\"hosted\"}");
    puts("ok");
    return 0;
}
