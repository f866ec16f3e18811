// Package redacttest has secrets as they stand in texts, for the tests of all that shows a text.
package redacttest

import (
	"encoding/base64"
	"encoding/hex"
	"strings"
)

// Spellings are ways in which a secret, hunter2-9f8e7d, stands in texts of errors, in what producers and clients send,
// and in what providers answer.
var Spellings = []string{
	"password=hunter2-9f8e7d", "password: hunter2-9f8e7d", "Password = hunter2-9f8e7d", "PASSWORD=hunter2-9f8e7d",
	"PGPASSWORD=hunter2-9f8e7d",
	"db_password=hunter2-9f8e7d", "DB-PASSWORD=hunter2-9f8e7d", "dbPassword=hunter2-9f8e7d", "passwd=hunter2-9f8e7d",
	"passphrase: hunter2-9f8e7d",
	"pass=hunter2-9f8e7d", "pwd=hunter2-9f8e7d", "MYSQL_PWD=hunter2-9f8e7d", `"password":"hunter2-9f8e7d"`,
	`{\"password\":\"hunter2-9f8e7d\"}`,
	`{"password" : "two words hunter2-9f8e7d"}`, "password='hunter2-9f8e7d'", "PASSWORD 'hunter2-9f8e7d'",
	"password=>hunter2-9f8e7d", "password:=hunter2-9f8e7d",
	"<password>hunter2-9f8e7d</password>", "password%3Dhunter2-9f8e7d", "--password hunter2-9f8e7d",
	"--password=hunter2-9f8e7d", "{User:app Password:hunter2-9f8e7d}",
	"secret=hunter2-9f8e7d", "client_secret=hunter2-9f8e7d", "clientSecret: hunter2-9f8e7d",
	"AWS_SECRET_ACCESS_KEY=hunter2-9f8e7d", "secretKey=hunter2-9f8e7d",
	"token=hunter2-9f8e7d", "access_token=hunter2-9f8e7d", "refresh_token=hunter2-9f8e7d", "id_token: hunter2-9f8e7d",
	"x-auth-token: hunter2-9f8e7d",
	"csrfToken=hunter2-9f8e7d", "GET /x?a=1&access_token=hunter2-9f8e7d&b=2", "api_key=hunter2-9f8e7d",
	"apikey=hunter2-9f8e7d", "X-Api-Key: hunter2-9f8e7d",
	"api key: hunter2-9f8e7d", "access_key=hunter2-9f8e7d", "private_key=hunter2-9f8e7d",
	"AccountKey=hunter2-9f8e7d==;EndpointSuffix=x", "sig=hunter2-9f8e7d", "X-Amz-Signature=hunter2-9f8e7d",
	"session_id=hunter2-9f8e7d", "sid=hunter2-9f8e7d", "credentials: hunter2-9f8e7d",
	"Authorization: Bearer hunter2-9f8e7d", "authorization: Basic hunter2-9f8e7d",
	`Authorization: Digest username="app", response="hunter2-9f8e7d"`, "Proxy-Authorization: NTLM hunter2-9f8e7d",
	"Cookie: a=b; s=hunter2-9f8e7d", "Set-Cookie: s=hunter2-9f8e7d; Path=/",
	"map[Authorization:[Bearer hunter2-9f8e7d] Accept:[x]]", "map[Cookie:[a=b; s=hunter2-9f8e7d]]",
	"sent bearer hunter2-9f8e7d", "sent Basic hunter2-9f8e7d",
	"postgres://app:hunter2-9f8e7d@db:5432/x", "postgres://app:hunter2@hunter2-9f8e7d@db/x",
	"postgres://app:a/hunter2-9f8e7d@db/x", "postgres://:hunter2-9f8e7d@db/x",
	"postgres://app:a?b#hunter2-9f8e7d@db", "https://app:hunter2-9f8e7d@host/path", "https://hunter2-9f8e7d@host/path",
	"amqp://a:b@h1,amqp://c:hunter2-9f8e7d@h2",
	"app:hunter2-9f8e7d@tcp(db:3306)/x", "app:a@b/hunter2-9f8e7d@tcp(db:3306)/x",
	"eyJhbGciOiJI.eyJzdWIiOiIx.hunter2-9f8e7d", "got ghp_hunter2-9f8e7d", "AKIAHUNTER29F8E7D",
	"-----BEGIN RSA PRIVATE KEY-----\nhunter2-9f8e7d\n-----END RSA PRIVATE KEY-----",
	"-----BEGIN PRIVATE KEY-----\nhunter2-9f8e7d",
	`password="two \" hunter2-9f8e7d"`, "password='a hunter2-9f8e7d", "pin: hunter2-9f8e7d", "jwt=hunter2-9f8e7d",
}

// Shown are the forms of the secret in which it must not be seen: none of them stands in a text that has been masked.
var Shown = []string{"9f8e7d", "HUNTER29F8E7D", hex.EncodeToString([]byte("9f8e7d")),
	base64.StdEncoding.EncodeToString([]byte("hunter2-9f8e7d"))[:18]}

// Nasty is a text that moves a terminal, in the ways that there are, and opens a tag of HTML.
var Nasty = "a\x1b[31mb\x9bc\u009bd\u202ee\u2066f\u200bg\u2028h\ni\x00j\rk\U000e0041l<script>alert(1)</script>"

// In returns where a form of the secret stands in text, with what is around it; "" if there is none.
func In(text string) string {
	for _, form := range Shown {
		if at := strings.Index(text, form); at >= 0 {
			return text[max(0, at-200):min(len(text), at+100)]
		}
	}
	return ""
}
